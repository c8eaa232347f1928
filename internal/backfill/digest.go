package backfill

import (
	"hash/fnv"
	"io"

	"github.com/settleonce/settleonce/internal/store"
)

// digest tells whether two rows of one key say the same.
func digest(row *store.Imported) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(row.Fingerprint.Sum[:])
	_, _ = io.WriteString(h, row.State.String()+"\x00"+row.ProviderReference)
	return h.Sum64()
}

package store

import (
	"cmp"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// endedName is one name of a payment that ends.
type endedName struct {
	channel, text string
	payment       uuid.UUID
}

// queueNames keeps the names of payments that end, where callbacks of their
// channel do not repeat our payment id: an index on payments would cost every
// payment of every channel. Open ones are found among the open.
func (w *changes) queueNames(b *pgx.Batch) {
	var names []endedName
	for i := range w.ended {
		p := &w.ended[i]
		if p.Sends == 0 || w.named == nil || !w.named(p.Channel) {
			continue
		}
		names = append(names, endedName{p.Channel, p.ProviderKey.String(), p.ID})
		if p.ProviderReference != "" {
			names = append(names, endedName{p.Channel, p.ProviderReference, p.ID})
		}
	}
	if len(names) == 0 {
		return
	}
	// One order for all: wait for each other, do not deadlock.
	slices.SortFunc(names, func(a, b endedName) int {
		return cmp.Or(cmp.Compare(a.channel, b.channel), cmp.Compare(a.text, b.text))
	})
	channels, texts, ids := make([]string, len(names)), make([]string, len(names)), make([]uuid.UUID, len(names))
	for i, n := range names {
		channels[i], texts[i], ids[i] = n.channel, n.text, n.payment
	}
	b.Queue(`INSERT INTO settleonce.provider_references (channel, reference, payment)
		SELECT * FROM unnest($1::text[], $2::text[], $3::uuid[]) ON CONFLICT DO NOTHING`, channels, texts, pgUUIDs(ids))
}

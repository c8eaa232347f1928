package reconciler

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/leaktest"
	"github.com/settleonce/settleonce/payment"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// FuzzWake: a wake-up that can be read has a tier and a payment, and whatever it
// says, it waits no longer than its tier and a second.
func FuzzWake(f *testing.F) {
	const id = `"paymentId":"ff2255d7-18d1-5b8f-9078-152829f1b82f"`
	for _, seed := range []string{
		`{` + id + `,"attempt":1,"query":1,"dueAt":"2026-11-30T10:00:00Z"}`, `{` + id + `,"query":3,"dueAt":"9999-12-31T23:59:59Z"}`,
		`{` + id + `,"query":4}`, `{` + id + `,"query":0}`, `{` + id + `,"query":-1}`, `{` + id + `,"query":1e9}`, `{"query":1}`, `{}`, `null`, ``,
		`{"paymentId":"","query":1}`, `{` + id + `,"query":2,"dueAt":"0000-01-01T00:00:00Z"}`, `{` + id + `,"query":1}{}`, `[` + id + `]`,
	} {
		f.Add([]byte(seed), int64(0))
	}
	f.Add([]byte(`{`+id+`,"query":2}`), int64(-1<<63))
	f.Fuzz(func(t *testing.T, value []byte, ahead int64) {
		q, ok := readWake(value)
		if !ok {
			return
		}
		require.NotEqual(t, uuid.Nil, q.PaymentID)
		a, now := newAlarms(), time.Now()
		a.setClock(reading{now, now.Add(time.Duration(ahead))})
		tier := payment.Tiers[q.Query-1]
		require.LessOrEqual(t, a.local(q.DueAt, q.Query-1, now).Sub(now), tier*5/4+time.Second)
	})
}

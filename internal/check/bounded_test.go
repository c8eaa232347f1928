package check

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/payment"
)

// slowly is a limit of requests per second for the world's channel.
const slowly = 6.0

// judgeLimited judges what came in second by second at a channel with a limit.
func judgeLimited(t *testing.T, seconds []sim.LoadSecond) []Violation {
	t.Helper()
	w := newWorld(t)
	w.evidence.Load = sim.Load{Since: w.now.Add(-time.Hour), Seconds: seconds}
	rules := w.rules()
	rules.Limits = map[string]float64{"sim": slowly}
	return Judge(w.file(), rules).Violations
}

// every is so many seconds with the same in each.
func every(seconds int, s sim.LoadSecond) (out []sim.LoadSecond) {
	for i := range seconds {
		s.At = begin.Unix() + int64(i)
		out = append(out, s)
	}
	return out
}

// partly has the first of them answered, and few come when they are refused.
func partly(seconds []sim.LoadSecond) []sim.LoadSecond {
	seconds[0].Refused = 1
	seconds[2].Queries, seconds[2].Refused = 1, 1
	return seconds
}

// refusedLater has the last of each second turned away in the next.
func refusedLater(seconds []sim.LoadSecond) []sim.LoadSecond {
	seconds[0].Refused--
	return append(seconds, sim.LoadSecond{At: begin.Unix() + int64(len(seconds)), Refused: 1})
}

var begin = time.Date(2026, 11, 30, 9, 30, 0, 0, time.UTC)

// What budget, limit and breaker allow is no violation, and more is, by what was
// exceeded.
func TestBounded_ByTheSecond(t *testing.T) {
	t.Parallel()
	for name, seconds := range map[string][]sim.LoadSecond{
		"queries at the limit":             every(60, sim.LoadSecond{Queries: 6}),
		"sends at the limit":               every(60, sim.LoadSecond{Submits: 6}),
		"a full bucket, and what was held": {{At: begin.Unix(), Queries: 6 * (1 + 3)}},
		"few tries while all is refused":   every(60, sim.LoadSecond{Queries: 1, Refused: 1}),
		"all is answered":                  every(60, sim.LoadSecond{Queries: 5}),
		"two of three are refused":         every(60, sim.LoadSecond{Queries: 6, Refused: 4}),
	} {
		require.Empty(t, judgeLimited(t, seconds), name)
	}
	for name, seconds := range map[string][]sim.LoadSecond{
		"and the budget allows": {{At: begin.Unix(), Queries: 100}},
		"within 10 s from":      every(10, sim.LoadSecond{Queries: 10}),
		"and its limit allows":  every(20, sim.LoadSecond{Submits: 8, Queries: 5}),
		"its breaker allows":    every(25, sim.LoadSecond{Queries: 6, Refused: 6}),
		"which it turned":       partly(every(25, sim.LoadSecond{Queries: 6, Refused: 6})),
		"turned everything":     refusedLater(every(25, sim.LoadSecond{Queries: 6, Refused: 6})),
	} {
		found := judgeLimited(t, seconds)
		require.NotEmpty(t, found, name)
		require.Equal(t, "G13", found[0].Guarantee)
		require.Contains(t, found[0].Text, name)
	}
}

// Without a limit the floor counts, in three seconds as in ten.
func TestBounded_AShortBurst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.evidence.Load = sim.Load{Since: w.now.Add(-time.Hour), Seconds: []sim.LoadSecond{{At: begin.Unix(), Submits: 300}, {At: begin.Unix() + 3, Queries: 300}}}
	w.evidence.Queries = 300
	w.requireBroken("G13", uuid.Nil)
	w.evidence.Load.Seconds[1].Queries = 150
	w.requireClean()
}

// asked is a payment that was sent, stayed without an answer, and went to review after
// so many queries came in at the channel and so many were lost.
func (w *tables) asked(arrived, lost int) payment.Command {
	c := w.command()
	w.deliver(c)
	w.ask(c, sim.StatusSettled)
	w.last().Queries = arrived
	w.announce(c, 1, w.tick().Add(time.Second))
	w.tell(c, payment.EventReviewRequired, payment.Review)
	id := c.Identity().PaymentID()
	w.db.Open[id] = OpenRow{NextCheckAt: w.db.At.Add(time.Minute)}
	w.db.Holds = append(w.db.Holds, HoldRow{"shop", c.OrderID, id})
	w.db.Payments = append(w.db.Payments, PaymentRow{
		ID: id, Identity: c.Identity(), ProviderKey: c.Identity().ProviderKey(1), State: payment.Review, Version: 1, Attempt: 1, Sends: 1,
	})
	w.db.Unanswered = map[uuid.UUID]int{id: lost}
	return c
}

// refusedWith is a payment that was declined after so many requests, with so many
// permits before the decline and behind it.
func (w *tables) refusedWith(requests int, p PermitRow) payment.Command {
	c := w.command()
	w.declined(c)
	w.last().Requests, w.last().LastAt = requests, w.now.Add(time.Minute)
	id := c.Identity().PaymentID()
	w.db.Ends[id] = []payment.State{payment.Declined}
	w.db.Payments = append(w.db.Payments, PaymentRow{
		ID: id, Identity: c.Identity(), ProviderKey: c.Identity().ProviderKey(1), State: payment.Declined, Version: 1, Attempt: 1,
		Sends: requests, Reference: "ch_" + c.OrderID,
	})
	w.db.Permits = map[uuid.UUID]PermitRow{id: p}
	return c
}

// recovered has somebody acknowledge, after all that there is, that commits were lost.
func (w *tables) recovered(c payment.Command) payment.Command {
	w.db.Recovered = w.now.Add(time.Second)
	w.last().LastAt = w.last().FirstAt
	return c
}

func (w *tables) called(kind, result string) payment.Command {
	c := w.command()
	_, e := w.charged(c)
	id := c.Identity().PaymentID()
	w.db.Ends[id] = []payment.State{payment.Succeeded}
	w.db.Payments = append(w.db.Payments, PaymentRow{
		ID: id, Identity: c.Identity(), ProviderKey: c.Identity().ProviderKey(1), State: payment.Succeeded, Version: 1, Attempt: 1,
		Sends: 1, Reference: e.ProviderReference,
	})
	w.db.Callbacks = append(w.db.Callbacks, CallbackRow{Channel: "sim", Payment: id, ReceivedAt: w.now, Kind: kind, Result: result})
	return c
}

// bounds are what is allowed, and what breaks the guarantee named first.
var bounds = map[string]func(w *tables) payment.Command{
	"asked three times":                         func(w *tables) payment.Command { return w.asked(3, 0) },
	"asked twice, and one lost":                 func(w *tables) payment.Command { return w.asked(2, 1) },
	"permitted before, and arrives late":        func(w *tables) payment.Command { return w.refusedWith(2, PermitRow{Before: 2}) },
	"a permit that never arrived":               func(w *tables) payment.Command { return w.refusedWith(1, PermitRow{Before: 2}) },
	"its permit was lost in a failover":         func(w *tables) payment.Command { return w.recovered(w.refusedWith(1, PermitRow{})) },
	"its queries were, and are asked again":     func(w *tables) payment.Command { return w.recovered(w.asked(0, 0)) },
	"a refund is written down":                  func(w *tables) payment.Command { return w.called("refunded", "recorded") },
	"a refund makes us ask":                     func(w *tables) payment.Command { return w.called("refunded", "asked") },
	"success agrees":                            func(w *tables) payment.Command { return w.called("succeeded", "agreed") },
	"G13 in review, and never asked":            func(w *tables) payment.Command { return w.asked(0, 0) },
	"G13 in review after two queries":           func(w *tables) payment.Command { return w.asked(2, 0) },
	"G4 asked with a permit behind a decline":   func(w *tables) payment.Command { return w.refusedWith(2, PermitRow{Before: 1, After: 1}) },
	"G4 permitted behind a decline":             func(w *tables) payment.Command { return w.refusedWith(1, PermitRow{Before: 1, After: 1}) },
	"G4 asked without a permit":                 func(w *tables) payment.Command { return w.refusedWith(2, PermitRow{Before: 1}) },
	"G9 a refund agrees with the outcome":       func(w *tables) payment.Command { return w.called("refunded", "agreed") },
	"G9 a dispute is the evidence of a payment": func(w *tables) payment.Command { return w.called("disputed", "evidence") },
}

// Where nobody says which channels can be asked, the verdict says what it does not rest on.
func TestBounded_SaysWhatItCannotSee(t *testing.T) {
	t.Parallel()
	w := newTables(t)
	w.asked(0, 0)
	w.called("succeeded", "evidence")
	rules := w.rules()
	rules.Database = w.db
	v := Judge(w.file(), rules)
	require.Empty(t, v.Violations)
	require.Contains(t, v.Unchecked, Unchecked{"G13", "whether three queries were made before a person was asked", lookupsUnknown})
	require.Contains(t, v.Unchecked, Unchecked{"G3", "whether a callback decided where the channel can be asked", lookupsUnknown})
}

func TestBounded_ByTheTables(t *testing.T) {
	t.Parallel()
	for name, play := range bounds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTables(t)
			w.paid()
			c := play(w)
			rules := w.rules()
			rules.Database, rules.Lookups = w.db, []string{"sim"}
			found := Judge(w.file(), rules).Violations
			guarantee, _, _ := strings.Cut(name, " ")
			if !strings.HasPrefix(guarantee, "G") {
				require.Empty(t, found)
				return
			}
			require.NotEmpty(t, found)
			require.Equal(t, guarantee, found[0].Guarantee)
			require.Equal(t, c.IdempotencyKey.String(), found[0].Key)
		})
	}
}

// A worker that was frozen past its lease announces a re-query after another one took its
// payment over: that one's query is no early one. Of a worker that goes on it would be.
func TestBounded_AsksWhereAWorkerWasSilent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.command()
	w.charged(c)
	silent := w.last()
	silent.FirstAt = w.now.Add(-8 * time.Second)
	w.announce(c, 1, w.now.Add(time.Second))
	silent.QueriedAt = []time.Time{w.now.Add(500 * time.Millisecond)}
	w.requireClean()
	silent.FirstAt = w.now.Add(-2 * time.Second)
	w.requireBroken("G13", c.IdempotencyKey)
}

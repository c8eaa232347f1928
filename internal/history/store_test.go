package history_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/history"
	"github.com/settleonce/settleonce/internal/pgtest"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// arena is a store whose callers note what they are told.
type arena struct {
	t        *testing.T
	store    *store.Store
	network  *lossy
	history  history.Recorder
	commands []payment.Command
	offset   atomic.Int64

	mu    sync.Mutex
	tells map[int64]*history.Call // by offset: a replay, of which outcome is read afterwards
}

const (
	orders      = 40
	keysOfOrder = 3
	callers     = 12
	rounds      = 40
)

func newArena(t *testing.T) *arena {
	t.Helper()
	network, dsn := newLossy(t, pgtest.DSN(t, pgtest.Schema))
	pool, err := store.OpenPool(t.Context(), store.PoolConfig{DSN: dsn, MaxConns: callers})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	a := &arena{
		t: t, network: network, tells: map[int64]*history.Call{},
		store: store.New(store.Config{Pool: pool, Topics: payment.NewTopics(""), Logger: zerolog.Nop()}),
	}
	for i := range orders * keysOfOrder {
		a.commands = append(a.commands, payment.Command{
			IdempotencyKey: uuid.New(), Caller: "shop", Operation: payment.OperationCharge, OrderID: fmt.Sprintf("order-%d", i%orders),
			Amount: 1999, Currency: "EUR", CustomerID: "cust-7", PaymentMethod: "tok_visa", Channel: "sim",
			IssuedAt: time.Now().UTC().Truncate(time.Microsecond),
		})
	}
	return a
}

// TestStoreIsLinearizable: a dozen callers deliver, settle and look; some give
// up in the middle, and answers of the database are lost, those to COMMITs too: the
// store then runs the transaction again, and may find its own first run. Every key's
// answers have a sequential explanation all the same (G1, G2, G8, G9).
func TestStoreIsLinearizable(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	a.network.oneIn.Store(50)
	var all sync.WaitGroup
	for client := range callers {
		all.Go(func() {
			for range rounds {
				a.call(client)
			}
		})
	}
	all.Wait()
	a.network.oneIn.Store(0)
	a.finalLook()
	a.amend()
	report := a.history.Check(10 * time.Minute)
	t.Logf("%d calls of %d keys, %d unseen, %d answers of the database lost, %d calls that may have run twice",
		report.Calls, report.Keys, report.Unseen, a.network.lost.Load(), report.Twice)
	require.NoError(t, report.Err())
	require.Equal(t, len(a.commands), report.Keys)
	require.Greater(t, report.Unseen, 20, "nobody gave up: the test shows less than it says")
	require.Greater(t, report.Twice, 10, "hardly an answer was lost: the test shows less than it says")
}

// call does one thing to a random key or batch, and sometimes does not wait for
// its answer.
func (a *arena) call(client int) {
	ctx, cancel := context.WithCancel(a.t.Context())
	defer cancel()
	if rand.IntN(8) == 0 { // the caller dies in the middle
		timer := time.AfterFunc(time.Duration(rand.IntN(12_000))*time.Microsecond, cancel)
		defer timer.Stop()
	}
	switch rand.IntN(4) {
	case 0, 1:
		a.deliver(ctx, client)
	case 2:
		a.settle(ctx, client)
	default:
		a.lookAt(ctx, client, a.commands[rand.IntN(len(a.commands))])
	}
}

// deliver claims a batch, in which a key may be there twice and a tenth of the
// copies have other content.
func (a *arena) deliver(ctx context.Context, client int) {
	arrivals := make([]store.Arrival, 1+rand.IntN(8))
	calls := make([]*history.Call, len(arrivals))
	for i := range arrivals {
		c := a.commands[rand.IntN(len(a.commands))]
		if rand.IntN(10) == 0 {
			c.Amount = 5
		}
		arrivals[i] = a.arrive(c)
		calls[i] = a.history.Begin(client, history.Input{Kind: history.Deliver, Key: c.IdempotencyKey.String(), Content: strconv.FormatInt(c.Amount, 10)})
	}
	lost := a.network.lost.Load()
	out, err := a.store.Claim(ctx, store.Batch{
		Arrivals: arrivals, Lease: rand.Int64() | 1, LeaseFor: 30 * time.Second, SendWithin: 20 * time.Second,
		Freshness: payment.Freshness{}.WithDefaults(), Group: "group",
	})
	if err != nil {
		return // of the whole batch nothing was heard
	}
	for i := range out {
		a.doubt(calls[i], lost)
		calls[i].End(answerOf(out[i]))
		if out[i].Verdict == store.Replayed {
			a.mu.Lock()
			a.tells[arrivals[i].Origin.Offset] = calls[i]
			a.mu.Unlock()
		}
	}
}

// doubt notes that the call may have run twice, if an answer was lost since: it may
// have been this call's.
func (a *arena) doubt(call *history.Call, lost int64) {
	if a.network.lost.Load() > lost {
		call.MayHaveRunTwice()
	}
}

func (a *arena) arrive(c payment.Command) store.Arrival {
	fingerprint, err := c.Fingerprint()
	if err != nil {
		a.t.Error(err)
	}
	return store.Arrival{
		Origin: store.Origin{Topic: "payment.commands", Offset: a.offset.Add(1), Time: time.Unix(0, 0)},
		Raw:    store.Raw{Value: c.AppendJSON(nil)}, Identity: c.Identity(), Command: c, Fingerprint: fingerprint,
		Namespace: c.Caller, ChannelIdentity: "sim/test", Admit: rand.IntN(8) > 0,
	}
}

func answerOf(o store.Outcome) history.Output {
	switch o.Verdict {
	case store.Claimed, store.Parked:
		return history.Output{Answer: history.Claimed}
	case store.Pending:
		return history.Output{Answer: history.Pending}
	case store.Replayed:
		return history.Output{Answer: history.Replayed, Code: o.Code}
	case store.Conflicted:
		return history.Output{Answer: history.Conflict}
	case store.Rejected:
		return history.Output{Answer: history.Rejected, Code: o.Code}
	case store.DeadLettered:
	}
	return history.Output{Answer: history.Missing} // no delivery of a good command may end so
}

// settle brings an answer of the provider, or that there was none.
func (a *arena) settle(ctx context.Context, client int) {
	c := a.commands[rand.IntN(len(a.commands))]
	in := history.Input{
		Kind: history.Settle, Key: c.IdempotencyKey.String(), Reference: uuid.NewString(),
		To: []payment.State{payment.Unknown, payment.Declined, payment.Succeeded}[rand.IntN(3)],
	}
	call := a.history.Begin(client, in)
	lost := a.network.lost.Load()
	out, err := a.store.Apply(ctx, []store.Step{{Payment: c.Identity().PaymentID(), Decide: func(l store.Locked) *store.Change {
		return change(l, in)
	}}})
	a.doubt(call, lost)
	switch {
	case err != nil || out[0].Err != nil:
	case !out[0].Found:
		call.End(history.Output{Answer: history.Missing})
	case out[0].Change == nil:
		call.End(history.Output{Answer: history.Refused})
	default:
		call.End(history.Output{Answer: history.Applied})
	}
}

func change(l store.Locked, in history.Input) *store.Change {
	if !l.Payment.State.CanBecome(in.To) {
		return nil
	}
	c := store.Change{To: in.To, Reference: in.Reference, Actor: "test", Cause: "test", Event: payment.EventUnknown}
	if in.To == payment.Unknown {
		open := *l.Open
		open.Lease, open.NextCheckAt = 0, l.Now.Add(time.Hour)
		c.Open = &open
		return &c
	}
	c.Event, c.Reply = payment.EventSucceeded, payment.ReplyOutcome
	if in.To == payment.Declined {
		c.Event = payment.EventDeclined
	}
	return &c
}

func (a *arena) lookAt(ctx context.Context, client int, c payment.Command) {
	call := a.history.Begin(client, history.Input{Kind: history.Look, Key: c.IdempotencyKey.String()})
	st, err := a.store.Status(ctx, c.Identity().PaymentID())
	switch {
	case errors.Is(err, store.ErrNotFound):
		call.End(history.Output{Answer: history.Missing})
	case err == nil:
		out := history.Output{Answer: history.Found, State: st.Payment.State, Reference: st.Payment.ProviderReference}
		if out.State == payment.Rejected {
			out.Code = payment.Code(st.Payment.Cause)
		}
		call.End(out)
	}
}

// finalLook reads every key once more, so that its last state is in the history.
func (a *arena) finalLook() {
	for _, c := range a.commands {
		a.lookAt(a.t.Context(), callers, c)
	}
}

// amend adds to the replays which outcome each was told: a claim does not return
// it, the table of deliveries keeps it.
func (a *arena) amend() {
	for _, c := range a.commands {
		st, err := a.store.Status(a.t.Context(), c.Identity().PaymentID())
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		require.NoError(a.t, err)
		for _, told := range st.Deliveries {
			// The last one counts: a first run that nobody heard of may have said less.
			if call := a.tells[told.Offset]; call != nil {
				call.Amend(func(out *history.Output) { out.State = told.State })
			}
		}
	}
}

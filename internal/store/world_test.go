package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/pgtest"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// world is a database of its own, the store under test on a pool with the
// store's session settings, and a second pool to look at what it did.
type world struct {
	t      *testing.T
	dsn    string
	store  *store.Store
	pool   *pgxpool.Pool // the store's
	look   *pgxpool.Pool
	wakes  atomic.Int64
	offset atomic.Int64
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dsn: pgtest.DSN(t, pgtest.Schema)}
	look, err := pgxpool.New(t.Context(), w.dsn)
	require.NoError(t, err)
	t.Cleanup(look.Close)
	w.look = look
	w.store, w.pool = w.open(w.dsn)
	return w
}

// open is a store on a pool of its own, whose statements wait over a pause of the
// machine: where a test holds a lock, nobody gives up and comes again.
func (w *world) open(dsn string) (*store.Store, *pgxpool.Pool) {
	w.t.Helper()
	var pool *pgxpool.Pool
	require.Eventually(w.t, func() (ok bool) { // one try has some seconds
		var err error
		pool, err = store.OpenPool(context.WithoutCancel(w.t.Context()), store.PoolConfig{DSN: unhurried(w.t, dsn), MaxConns: 8})
		return err == nil
	}, patience, 10*time.Millisecond)
	w.t.Cleanup(pool.Close)
	s := store.New(store.Config{
		Pool: pool, Topics: payment.NewTopics(""), Wake: func() { w.wakes.Add(1) }, Logger: zerolog.Nop(),
	})
	s.CommitWithin(patience)
	return s, pool
}

// patience is for what must come: nothing is timed by it.
const patience = 5 * time.Minute

// unhurried is a dsn whose sessions have timeouts that a pause of the machine does not use up.
func unhurried(t *testing.T, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	q := u.Query()
	for _, name := range []string{"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"} {
		q.Set(name, strconv.FormatInt(patience.Milliseconds(), 10))
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// deadlocks counts what Postgres broke up so far. It ends the store's sessions:
// they report late.
func (w *world) deadlocks() int {
	w.t.Helper()
	w.pool.Close()
	w.eventually("the sessions are gone", `SELECT count(*) = 0 FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = 'settleonce'`)
	return w.count(`SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`)
}

// command is a command nobody issued before, for an order of its own.
func command() payment.Command {
	return payment.Command{
		IdempotencyKey: uuid.New(), Caller: "shop", Operation: payment.OperationCharge, OrderID: "order-" + uuid.NewString(),
		Amount: 1999, Currency: "EUR", CustomerID: "cust-7", PaymentMethod: "tok_visa", Channel: "sim",
		IssuedAt: time.Now().UTC().Truncate(time.Microsecond),
	}
}

// sameOrder is another intent for the order of c.
func sameOrder(c payment.Command) payment.Command {
	other := command()
	other.OrderID = c.OrderID
	return other
}

// arrive is the next record of partition 0 with this command.
func (w *world) arrive(c payment.Command) store.Arrival {
	w.t.Helper()
	fingerprint, err := c.Fingerprint()
	require.NoError(w.t, err)
	value, err := c.MarshalJSON()
	require.NoError(w.t, err)
	return store.Arrival{
		Origin: w.origin(), Raw: store.Raw{Key: []byte(c.IdempotencyKey.String()), Value: value},
		Identity: c.Identity(), Command: c, Fingerprint: fingerprint, Namespace: c.Caller, ChannelIdentity: "sim/test", Admit: true,
	}
}

func (w *world) origin() store.Origin {
	return store.Origin{
		Topic: "payment.commands", Offset: w.offset.Add(1) - 1,
		Time: time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC),
	}
}

func (w *world) arriveAll(commands ...payment.Command) []store.Arrival {
	out := make([]store.Arrival, len(commands))
	for i := range commands {
		out[i] = w.arrive(commands[i])
	}
	return out
}

func batch(arrivals ...store.Arrival) store.Batch {
	return store.Batch{
		Arrivals: arrivals, Lease: rand.Int64() | 1, LeaseFor: 30 * time.Second, SendWithin: 20 * time.Second,
		Freshness: payment.Freshness{}.WithDefaults(), Group: "group",
	}
}

func (w *world) claim(arrivals ...store.Arrival) []store.Outcome {
	w.t.Helper()
	out, err := w.store.Claim(w.t.Context(), batch(arrivals...))
	require.NoError(w.t, err)
	require.Len(w.t, out, len(arrivals))
	return out
}

// claimed is a command that was claimed with a permit.
func (w *world) claimed(c payment.Command) payment.Command {
	w.t.Helper()
	require.Equal(w.t, []string{"fresh"}, verdicts(w.claim(w.arrive(c))))
	return c
}

func verdicts(out []store.Outcome) []string {
	names := make([]string, len(out))
	for i := range out {
		names[i] = out[i].Verdict.String()
		if out[i].Code != "" {
			names[i] += " " + string(out[i].Code)
		}
	}
	return names
}

func idOf(c payment.Command) uuid.UUID { return c.Identity().PaymentID() }

// apply runs one decision and returns what became of it.
func (w *world) apply(id uuid.UUID, decide func(store.Locked) *store.Change) store.Applied {
	w.t.Helper()
	out, err := w.store.Apply(w.t.Context(), []store.Step{{Payment: id, Decide: decide}})
	require.NoError(w.t, err)
	return out[0]
}

func always(c store.Change) func(store.Locked) *store.Change {
	return func(store.Locked) *store.Change { copied := c; return &copied }
}

// finish is a change that ends a payment.
func finish(state payment.State) store.Change {
	event := payment.EventSucceeded
	if state == payment.Declined {
		event = payment.EventDeclined
	}
	return store.Change{To: state, Reference: "ref-1", Cause: causeOf(state), Event: event, Reply: payment.ReplyOutcome, Actor: "test"}
}

func causeOf(state payment.State) string {
	if state == payment.Declined {
		return "insufficient_funds"
	}
	return ""
}

// reach brings a payment that was just claimed into a state.
func (w *world) reach(id uuid.UUID, state payment.State) {
	w.t.Helper()
	switch state {
	case payment.Pending:
		return
	case payment.Unknown:
		w.apply(id, waiting(payment.Unknown, payment.EventUnknown))
	case payment.Review:
		w.apply(id, waiting(payment.Review, payment.EventReviewRequired))
	case payment.Succeeded, payment.Declined, payment.Rejected:
		w.apply(id, always(finish(state)))
	}
	require.Equal(w.t, state, w.status(id).Payment.State)
}

func waiting(to payment.State, event payment.EventType) func(store.Locked) *store.Change {
	return func(l store.Locked) *store.Change {
		open := *l.Open
		open.Lease, open.LeaseUntil, open.NextCheckAt = 0, l.Now, l.Now.Add(time.Hour)
		return &store.Change{To: to, Event: event, Open: &open, Cause: "no answer", Actor: "test"}
	}
}

func (w *world) status(id uuid.UUID) store.Status {
	w.t.Helper()
	st, err := w.store.Status(w.t.Context(), id)
	require.NoError(w.t, err)
	return st
}

// sent is a message in the outbox.
type sent struct {
	ID      uuid.UUID
	Topic   string
	Key     string
	Type    string
	Payload []byte
	Headers map[string]string
}

// outbox reads all messages in the order of their sequence.
func (w *world) outbox() []sent {
	w.t.Helper()
	rows, err := w.look.Query(w.t.Context(), `SELECT id, aggregatetype, coalesce(aggregateid, ''), type, payload, coalesce(headers, '{}')
		FROM settleonce.outbox ORDER BY seq`)
	require.NoError(w.t, err)
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (sent, error) {
		var m sent
		var key, headers []byte
		if err := row.Scan(&m.ID, &m.Topic, &key, &m.Type, &m.Payload, &headers); err != nil {
			return m, err
		}
		m.Key = string(key)
		return m, json.Unmarshal(headers, &m.Headers)
	})
	require.NoError(w.t, err)
	return out
}

// replies decodes the replies in the outbox, in order.
func (w *world) replies() []payment.Reply {
	w.t.Helper()
	return decodeAll[payment.Reply](w, "payment.replies")
}

func (w *world) events() []payment.Event {
	w.t.Helper()
	return decodeAll[payment.Event](w, "payment.events")
}

func decodeAll[T any](w *world, topic string) []T {
	w.t.Helper()
	var out []T
	for _, m := range w.outbox() {
		if m.Topic != topic {
			continue
		}
		var v T
		require.NoError(w.t, json.Unmarshal(m.Payload, &v))
		out = append(out, v)
	}
	return out
}

// count runs a query that returns one number.
func (w *world) count(query string, arguments ...any) int {
	w.t.Helper()
	var n int
	require.NoError(w.t, w.look.QueryRow(w.t.Context(), query, arguments...).Scan(&n))
	return n
}

func (w *world) exec(query string, arguments ...any) {
	w.t.Helper()
	_, err := w.look.Exec(w.t.Context(), query, arguments...)
	require.NoError(w.t, err)
}

// holder is the payment that holds an obligation, or the nil UUID.
func (w *world) holder(namespace, obligation string) uuid.UUID {
	w.t.Helper()
	var id uuid.UUID
	err := w.look.QueryRow(w.t.Context(), `SELECT payment FROM settleonce.obligation_holds WHERE namespace = $1 AND obligation = $2`,
		namespace, obligation).Scan(&id)
	if err != nil {
		require.ErrorIs(w.t, err, pgx.ErrNoRows)
	}
	return id
}

// consistent checks what must hold between the tables at any time.
func (w *world) consistent() {
	w.t.Helper()
	for what, query := range map[string]string{
		"an open row per unresolved payment, and no other": `SELECT count(*) FROM settleonce.payments p FULL JOIN settleonce.open_payments o
			ON o.payment = p.id WHERE (p.state IN (1, 2, 3)) IS DISTINCT FROM (o.payment IS NOT NULL)`,
		"a hold per unresolved payment, and no other": `SELECT count(*) FROM settleonce.payments p FULL JOIN settleonce.obligation_holds h
			ON h.payment = p.id WHERE (p.state IN (1, 2, 3)) IS DISTINCT FROM (h.payment IS NOT NULL)
			OR (h.payment IS NOT NULL AND (h.namespace, h.obligation) IS DISTINCT FROM (p.namespace, p.obligation))`,
		"the sends of both rows agree": `SELECT count(*) FROM settleonce.payments p JOIN settleonce.open_payments o
			ON o.payment = p.id WHERE o.sends <> p.sends`,
		"the last history row is the state": `SELECT count(*) FROM settleonce.payments p FULL JOIN
			(SELECT DISTINCT ON (payment) payment, state FROM settleonce.payment_history ORDER BY payment, at DESC, version DESC) h
			ON h.payment = p.id WHERE h.state IS DISTINCT FROM p.state`,
	} {
		require.Zero(w.t, w.count(query), what)
	}
	w.gapless()
}

// gapless checks that the events of every payment are numbered 1 … n in the
// order of the outbox, and that n is the stored version (G10).
func (w *world) gapless() {
	w.t.Helper()
	versions := make(map[uuid.UUID]int)
	for _, e := range w.events() {
		versions[e.PaymentID]++
		require.Equal(w.t, versions[e.PaymentID], e.Version, "version of an event of %s", e.PaymentID)
	}
	rows, err := w.look.Query(w.t.Context(), `SELECT id, version FROM settleonce.payments`)
	require.NoError(w.t, err)
	var id uuid.UUID
	var version int
	_, err = pgx.ForEachRow(rows, []any{&id, &version}, func() error {
		if versions[id] != version {
			return fmt.Errorf("payment %s has version %d and %d events", id, version, versions[id])
		}
		return nil
	})
	require.NoError(w.t, err)
}

// eventually waits for a condition in the database.
func (w *world) eventually(what, query string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		var ok bool
		err := w.look.QueryRow(context.WithoutCancel(w.t.Context()), query).Scan(&ok)
		return err == nil && ok
	}, patience, 10*time.Millisecond, what)
}

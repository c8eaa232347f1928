package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// watcher reads everything we publish, with a client that is not ours.
type watcher struct {
	mu      sync.Mutex
	records map[string]map[string][]*kgo.Record // topic → key → in topic order
	all     map[string][]*kgo.Record
	changed chan struct{} // closed and replaced when something came
}

func startWatcher(t testing.TB, brokers []string, names payment.Topics) *watcher {
	t.Helper()
	list := slices.Concat(names.AllReplies(), names.AllEvents(), []string{names.DeadLetter}, names.Requery[:])
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(list...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(time.Second), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	)
	require.NoError(t, err)
	w := &watcher{records: map[string]map[string][]*kgo.Record{}, all: map[string][]*kgo.Record{}, changed: make(chan struct{})}
	for _, topic := range list {
		w.records[topic] = map[string][]*kgo.Record{}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			w.add(client.PollFetches(ctx).Records())
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		client.Close()
	})
	return w
}

func (w *watcher) add(records []*kgo.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range records {
		w.all[r.Topic] = append(w.all[r.Topic], r)
		w.records[r.Topic][string(r.Key)] = append(w.records[r.Topic][string(r.Key)], r)
	}
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *watcher) of(topic, key string) []*kgo.Record {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.records[topic][key])
}

func (w *watcher) topic(topic string) []*kgo.Record {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.all[topic])
}

// until waits until the condition holds; it looks again whenever something came.
func (w *watcher) until(t testing.TB, condition func() bool, what string, args ...any) {
	t.Helper()
	timeout := time.NewTimer(waitLong)
	defer timeout.Stop()
	for {
		w.mu.Lock()
		changed := w.changed
		w.mu.Unlock()
		if condition() {
			return
		}
		select {
		case <-changed:
		case <-timeout.C:
			require.Fail(t, "it never came: "+fmt.Sprintf(what, args...))
		}
	}
}

func (s *stack) send(commands ...payment.Command) {
	s.t.Helper()
	messages := make([]kafka.Message, len(commands))
	for i := range commands {
		messages[i] = kafka.Message{
			Topic: s.topics.Commands, Key: []byte(commands[i].IdempotencyKey.String()), Value: commands[i].AppendJSON(nil),
		}
	}
	require.NoError(s.t, s.publish.Publish(s.ctx, messages...))
}

// replies are all replies to a key so far, in topic order.
func (s *stack) replies(key uuid.UUID) []payment.Reply {
	s.t.Helper()
	records := s.watch.of(s.topics.Replies, key.String())
	out := make([]payment.Reply, len(records))
	for i, r := range records {
		require.NoError(s.t, json.Unmarshal(r.Value, &out[i]))
	}
	return out
}

// events are all events of a payment so far, in topic order.
func (s *stack) events(c payment.Command) []payment.Event {
	s.t.Helper()
	var out []payment.Event
	for _, r := range s.watch.of(s.topics.Events, c.IdempotencyKey.String()) {
		var e payment.Event
		require.NoError(s.t, json.Unmarshal(r.Value, &e))
		if e.PaymentID == c.Identity().PaymentID() {
			out = append(out, e)
		}
	}
	return out
}

// waitReply waits until a reply of the kind came for the key.
func (s *stack) waitReply(key uuid.UUID, kind payment.ReplyKind) payment.Reply {
	s.t.Helper()
	return s.waitReplies(key, kind, 1)[0]
}

// waitReplies waits until n replies of the kind came for the key.
func (s *stack) waitReplies(key uuid.UUID, kind payment.ReplyKind, n int) []payment.Reply {
	s.t.Helper()
	var found []payment.Reply
	s.watch.until(s.t, func() bool {
		found = slices.DeleteFunc(s.replies(key), func(r payment.Reply) bool { return r.Kind != kind })
		return len(found) >= n
	}, "%d %s replies for %s", n, kind, key)
	return found
}

// waitEvents waits until the payment has so many events, and returns their states;
// their versions must be 1, 2, 3 … (G10).
func (s *stack) waitEvents(c payment.Command, n int) []payment.State {
	s.t.Helper()
	s.watch.until(s.t, func() bool { return len(s.events(c)) >= n }, "%d events of %s", n, c.IdempotencyKey)
	return s.eventStates(c)
}

func (s *stack) eventStates(c payment.Command) []payment.State {
	s.t.Helper()
	var states []payment.State
	for i, e := range s.events(c) {
		require.Equal(s.t, i+1, e.Version, "versions of %s", c.IdempotencyKey)
		states = append(states, e.State)
	}
	return states
}

// state is the payment's state now; 0 while there is none.
func (s *stack) state(c payment.Command) payment.State {
	var state payment.State
	err := s.db.QueryRow(s.ctx, `SELECT state FROM settleonce.payments WHERE id = $1::text::uuid`, c.Identity().PaymentID().String()).Scan(&state)
	if err != nil {
		return 0
	}
	return state
}

// waitState waits until the payment is in the state.
func (s *stack) waitState(c payment.Command, state payment.State) store.Status {
	s.t.Helper()
	deadline := time.NewTimer(waitLong)
	defer deadline.Stop()
	every := time.NewTicker(tick)
	defer every.Stop()
	for s.state(c) != state {
		select {
		case <-every.C:
		case <-deadline.C:
			require.Fail(s.t, fmt.Sprintf("payment %s never %s\n%s", c.IdempotencyKey, state, s.story(c)))
		}
	}
	return s.status(c)
}

// story is what is known about a payment, for the reader of a failure.
func (s *stack) story(c payment.Command) string {
	st, err := s.check.Status(s.ctx, c.Identity().PaymentID())
	if err != nil {
		return err.Error()
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s, ledger %+v, open %+v", st.Payment.State, s.charge(c), st.Open)
	for _, h := range st.History {
		fmt.Fprintf(&text, "\n%s %s send %d by %s: %s", h.At.Format(time.TimeOnly), h.State, h.Send, h.Actor, h.Cause)
	}
	return text.String()
}

// waitEnd waits until the payment is in a terminal state.
func (s *stack) waitEnd(c payment.Command) payment.State {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return s.state(c).Terminal() }, waitLong, tick, "payment %s never ended", c.IdempotencyKey)
	return s.state(c)
}

func (s *stack) status(c payment.Command) store.Status {
	s.t.Helper()
	st, err := s.check.Status(s.ctx, c.Identity().PaymentID())
	require.NoError(s.t, err)
	return st
}

// charge is what the channel's ledger says about the command's first attempt.
func (s *stack) charge(c payment.Command) sim.Charge {
	for _, charge := range s.sim.Charges() {
		if charge.ProviderKey == c.Identity().ProviderKey(1) {
			return charge
		}
	}
	return sim.Charge{}
}

// ledger is all of the channel's ledger, by provider key.
func (s *stack) ledger() map[uuid.UUID]sim.Charge {
	ledger := map[uuid.UUID]sim.Charge{}
	for _, charge := range s.sim.Charges() {
		ledger[charge.ProviderKey] = charge
	}
	return ledger
}

// providerKeys is how many provider keys the channel was sent for an order.
func (s *stack) providerKeys(order string) int {
	n := 0
	for _, charge := range s.sim.Charges() {
		if charge.Order == order {
			n++
		}
	}
	return n
}

// settled is how often the channel took the money for a command.
func (s *stack) settled(c payment.Command) int { return s.charge(c).Settled }

// once requires that the ledger agrees with the payment's state, and that the
// money was taken once at most (G1).
func (s *stack) once(c payment.Command) {
	s.t.Helper()
	charge, state := s.charge(c), s.state(c)
	switch state {
	case payment.Succeeded:
		require.Equal(s.t, 1, charge.Settled, "%s %s", state, c.IdempotencyKey)
	case payment.Declined, payment.Rejected:
		require.Zero(s.t, charge.Settled, "%s %s", state, c.IdempotencyKey)
	case payment.Pending, payment.Unknown, payment.Review:
		require.LessOrEqual(s.t, charge.Settled, 1, "%s %s", state, c.IdempotencyKey)
	}
}

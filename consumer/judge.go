package consumer

import (
	"context"
	"maps"
	"time"

	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/internal/telemetry"
	"github.com/settleonce/settleonce/internal/tracing"
	"github.com/settleonce/settleonce/payment"
)

func (c *Consumer) rules() *settle.Rules { return c.cfg.Settler.Rules() }

// sendWithin is the longest deadline of the channels in a batch.
func (c *Consumer) sendWithin(arrivals []store.Arrival) time.Duration {
	longest := c.rules().SendStart()
	for i := range arrivals {
		if entry, ok := c.rules().Channels.Get(arrivals[i].Command.Channel); ok {
			longest = max(longest, c.rules().SendWithin(entry.Capabilities))
		}
	}
	return longest
}

// judge reads records as far as that needs no database, but where an old copy of
// the callers would refuse one. It returns nil when ctx ended first.
func (l *lane) judge(ctx context.Context, batch []*kafka.Delivery) []store.Arrival {
	arrivals := make([]store.Arrival, len(batch))
	var doubted []int
	for i, d := range batch {
		arrivals[i] = l.c.read(d)
		if refusedByCopy(&arrivals[i]) {
			doubted = append(doubted, i)
		}
	}
	if len(doubted) > 0 && !l.c.refresh(ctx) {
		return nil
	}
	for _, i := range doubted {
		arrivals[i] = l.c.read(batch[i])
	}
	return arrivals
}

// read decides what a record is: a command, a command that is refused whatever
// the database says, or something that cannot be read.
func (c *Consumer) read(d *kafka.Delivery) store.Arrival {
	a := store.Arrival{
		Origin: store.Origin{Topic: d.Topic, Partition: d.Partition, Offset: d.Offset, Time: d.Time},
		Raw:    store.Raw{Key: d.Key, Value: d.Value, Headers: headers(d.Headers)},
		Trace:  tracing.Of(d.Headers),
	}
	decoded := payment.Decode(d.Value)
	switch {
	case !decoded.Identified:
		a.Dead = &store.Dead{Reason: decoded.Err.Reason, Error: decoded.Err.Error()}
		return a
	case !decoded.KeyMatches(d.Key):
		a.Dead = &store.Dead{
			Reason: payment.DeadKeyMismatch,
			Error:  "the record's key is not the body's idempotencyKey; publish with the idempotencyKey as the Kafka key",
		}
		return a
	}
	// G12: nobody charges in another caller's name.
	if a.Dead = c.strange(d, decoded.Identity.Caller); a.Dead != nil {
		return a
	}
	a.Identity, a.Command = decoded.Identity, decoded.Command
	a.Namespace, a.RepayNamed = c.cfg.Callers.Namespace(a.Identity.Caller)
	c.refuse(&a, decoded, d.Value)
	return a
}

// refuse marks what may not be charged: it is answered and remembered (G2).
func (c *Consumer) refuse(a *store.Arrival, decoded payment.Decoded, value []byte) {
	if decoded.Err != nil {
		a.Refusal = &store.Refusal{Code: payment.CodeInvalidCommand, Detail: decoded.Err.Error()}
		a.Command = payment.Command{
			IdempotencyKey: a.Identity.Key, Caller: a.Identity.Caller, Operation: a.Identity.Operation, IssuedAt: a.Origin.Time,
		}
		a.Fingerprint = payment.RawFingerprint(value)
		return
	}
	fingerprint, err := a.Command.Fingerprint()
	if err != nil {
		a.Dead = &store.Dead{Reason: payment.DeadUnreadable, Error: err.Error()}
		return
	}
	a.Fingerprint = fingerprint
	entry, ok := c.rules().Channels.Get(a.Command.Channel)
	if !ok {
		a.Refusal = &store.Refusal{
			Code:   payment.CodeUnknownChannel,
			Detail: "channel " + a.Command.Channel + " is not configured; correct the name and issue a new command",
		}
		return
	}
	a.ChannelIdentity = entry.Capabilities.Identity
}

func headers(hs []kafka.Header) map[string]string {
	if len(hs) == 0 {
		return nil
	}
	out := make(map[string]string, len(hs))
	for _, h := range hs {
		name, value := store.HeaderText(h.Key, h.Value)
		out[name] = value
	}
	return out
}

// admission is the part of a batch that may be claimed now.
type admission struct {
	arrivals []store.Arrival
	gates    map[string]*settle.Gate
	slots    map[string]int // reserved and not used
}

// admit reserves slots and marks which commands get their first permit with the
// claim. Where a channel has no free slot the batch ends: the commands behind it
// wait, they are not parked. Where a channel is closed or limited, its commands
// are parked. A channel that stays busy for BusyWait parks too, so that it does
// not stop the others.
func (l *lane) admit(ctx context.Context, arrivals []store.Arrival) admission {
	deadline := time.Now().Add(l.c.cfg.BusyWait)
	for {
		a := l.reserve(arrivals, time.Now().After(deadline))
		if len(a.arrivals) > 0 || ctx.Err() != nil {
			return a
		}
		gate, _ := l.c.cfg.Settler.Gate(arrivals[0].Command.Channel)
		gate.Wait(ctx, time.Until(deadline))
	}
}

// reserve takes what it can get at once. With park set, a busy channel counts as
// a closed one.
func (l *lane) reserve(arrivals []store.Arrival, park bool) admission {
	a := admission{gates: map[string]*settle.Gate{}, slots: map[string]int{}}
	busy := map[string]bool{}
	for name, want := range wanted(arrivals) {
		gate, ok := l.c.cfg.Settler.Gate(name)
		if !ok {
			continue
		}
		got := gate.Reserve(want)
		a.gates[name], a.slots[name], busy[name] = gate, got.Granted, got.Busy && !park
	}
	left := maps.Clone(a.slots)
	for i := range arrivals {
		name := arrivals[i].Command.Channel
		if !sendable(&arrivals[i]) {
			continue
		}
		switch {
		case left[name] > 0:
			left[name]--
			arrivals[i].Admit = true
		case busy[name]:
			a.arrivals = arrivals[:i]
			if i == 0 {
				a.release()
			}
			return a
		}
	}
	a.arrivals = arrivals
	return a
}

func sendable(a *store.Arrival) bool { return a.Dead == nil && a.Refusal == nil }

func wanted(arrivals []store.Arrival) map[string]int {
	want := map[string]int{}
	for i := range arrivals {
		if sendable(&arrivals[i]) {
			want[arrivals[i].Command.Channel]++
		}
	}
	return want
}

// used marks a slot as a permit's: whoever sends it gives it back.
func (a *admission) used(channel string) { a.slots[channel]-- }

// release gives back every slot that no permit used.
func (a *admission) release() {
	for name, gate := range a.gates {
		if n := a.slots[name]; n > 0 {
			gate.Release(n, n)
			a.slots[name] = 0
		}
	}
}

// count reports a verdict to the metrics.
func (c *Consumer) count(o *store.Outcome, a *store.Arrival) {
	m := c.cfg.Metrics
	switch o.Verdict {
	case store.Claimed, store.Parked:
		m.Commands(telemetry.ResultFresh, 1)
	case store.Pending:
		m.Commands(telemetry.ResultPending, 1)
	case store.Replayed:
		m.Commands(telemetry.ResultReplayed, 1)
	case store.Conflicted:
		m.Commands(telemetry.ResultConflict, 1)
	case store.Rejected:
		m.Commands(telemetry.ResultRejected, 1)
		m.Rejections(o.Code, 1)
	case store.DeadLettered:
		m.Commands(telemetry.ResultDeadLettered, 1)
	}
	if reason, dead := deadReason(o, a); dead {
		m.DeadLetters(reason, 1)
	}
}

// deadReason is why a dead letter was written for an arrival: a stale command is
// answered and has one too (G14).
func deadReason(o *store.Outcome, a *store.Arrival) (payment.DeadLetterReason, bool) {
	switch {
	case o.Verdict == store.Rejected && o.Code == payment.CodeStaleCommand:
		return payment.DeadStale, true
	case o.Verdict != store.DeadLettered:
		return "", false
	case a.Dead != nil:
		return a.Dead.Reason, true
	default:
		return payment.DeadUnstorable, true // nothing was wrong with it before the database saw it
	}
}

package consumer

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/settleonce/settleonce/internal/crashpoint"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/store"
)

// lane claims the records of its partitions, batch after batch, in order.
type lane struct {
	c    *Consumer
	in   chan []*kafka.Delivery
	rest []*kafka.Delivery // taken over and not claimed yet
}

func newLane(c *Consumer) *lane { return &lane{c: c, in: make(chan []*kafka.Delivery, 8)} }

// run claims until ctx ends. What it has not claimed by then is not finished,
// and is delivered again.
func (l *lane) run(ctx context.Context) {
	for ctx.Err() == nil {
		l.collect(ctx)
		l.rest = live(l.rest)
		if len(l.rest) == 0 {
			continue
		}
		l.claim(ctx)
	}
}

// collect fills the batch with what is there, and waits only when it is empty:
// under load batches are large, without load nothing waits.
func (l *lane) collect(ctx context.Context) {
	if len(l.rest) == 0 {
		select {
		case more := <-l.in:
			l.rest = append(l.rest, more...)
		case <-ctx.Done():
			return
		}
	}
	for len(l.rest) < l.c.cfg.Batch {
		select {
		case more := <-l.in:
			l.rest = append(l.rest, more...)
		default:
			return
		}
	}
}

// live leaves out what another member owns by now: it will be delivered there.
func live(ds []*kafka.Delivery) []*kafka.Delivery {
	kept := ds[:0]
	for _, d := range ds {
		if d.Live() {
			kept = append(kept, d)
		}
	}
	clear(ds[len(kept):])
	return kept
}

// claim takes the next batch as far as the channels have slots for it, claims
// it, and starts its permitted sends.
func (l *lane) claim(ctx context.Context) {
	arrivals := l.judge(ctx, l.rest[:min(len(l.rest), l.c.cfg.Batch)])
	if len(arrivals) == 0 {
		return // only when ctx ended
	}
	admission := l.admit(ctx, arrivals)
	n := len(admission.arrivals)
	if n == 0 {
		return // only when ctx ended
	}
	batch := l.rest[:n]
	permits := permitTimes{before: time.Now(), lease: rand.Int64()}
	traced := l.c.trace(admission.arrivals)
	crashpoint.Here(crashpoint.ClaimStart)
	outcomes, ok := l.claimUntilDone(ctx, batch, store.Batch{
		Arrivals: admission.arrivals, Lease: permits.lease, LeaseFor: l.c.rules().Lease,
		SendWithin: l.c.sendWithin(admission.arrivals), Freshness: l.c.rules().Freshness, QueryFirst: l.c.suspect.Load(), Announce: l.c.cfg.Announce,
		Group: l.c.cfg.Group, Next: next(batch), CheckCallers: l.c.cfg.Registered,
	})
	traced.claimed(ok)
	if !ok {
		admission.release()
		return
	}
	crashpoint.Here(crashpoint.ClaimCommitted)
	kafka.Finish(batch)
	crashpoint.Here(crashpoint.ClaimFinished)
	l.send(outcomes, &admission, permits, traced)
	l.rest = l.rest[:copy(l.rest, l.rest[n:])]
}

// permitTimes is when the permits of a batch may at the earliest have been
// stored: local deadlines count from here, so they end before the stored ones.
type permitTimes struct {
	before time.Time
	lease  int64
}

// claimUntilDone claims the batch, again and again while the database does not
// answer: it fails closed, without a channel call, and nothing behind it is
// claimed meanwhile. It returns false when ctx ended first.
func (l *lane) claimUntilDone(ctx context.Context, batch []*kafka.Delivery, b store.Batch) ([]store.Outcome, bool) {
	started := time.Now()
	var outcomes []store.Outcome
	err := settle.UntilDone(ctx, func() (err error) {
		outcomes, err = l.c.cfg.Store.Claim(ctx, b)
		return err
	}, func(err error) {
		b.Again = true
		if errors.Is(err, store.ErrCallersChanged) && l.c.refresh(ctx) {
			l.judgeCallers(batch, b.Arrivals)
		}
		l.c.cfg.Logger.Warn().Err(err).Int("commands", len(b.Arrivals)).Msg("claim; trying again")
	})
	if err != nil {
		return nil, false
	}
	l.c.cfg.Metrics.Batch("claim", len(b.Arrivals), time.Since(started))
	return outcomes, true
}

// next is the offset that follows the batch, for each of its partitions.
func next(batch []*kafka.Delivery) map[store.Partition]int64 {
	offsets := make(map[store.Partition]int64, 8)
	for _, d := range batch {
		offsets[store.Partition{Topic: d.Topic, Number: d.Partition}] = d.Offset + 1
	}
	return offsets
}

// send starts what was permitted and gives back what was not used.
func (l *lane) send(outcomes []store.Outcome, admission *admission, permits permitTimes, traced traced) {
	rules := l.c.rules()
	for i := range outcomes {
		o := &outcomes[i]
		l.c.count(o, &admission.arrivals[i])
		if o.Verdict != store.Claimed {
			traced.judged(i, o)
			continue
		}
		entry, _ := rules.Channels.Get(o.Payment.Channel)
		admission.used(o.Payment.Channel)
		l.c.cfg.Settler.Submit(settle.Permit{
			Payment: *o.Payment, Lease: permits.lease, Actor: "consumer", Trace: traced.step(i, &admission.arrivals[i]),
			Start:    permits.before.Add(rules.SendStart()),
			Deadline: permits.before.Add(rules.SendWithin(entry.Capabilities)),
		})
	}
	admission.release()
}

package reconciler

import (
	"container/heap"
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/crashpoint"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/internal/tracing"
	"github.com/settleonce/settleonce/payment"
)

// alarm is a wake-up that waits for its time. It belongs to the assignment of
// its partition: a revoked one is dropped, the next owner has it.
type alarm struct {
	at       time.Time // local clock
	wake     store.Wake
	tier     int
	delivery *kafka.Delivery
}

// alarms holds wake-ups in the order of their times.
type alarms struct {
	mu    sync.Mutex
	queue alarmQueue
	// earlier is signalled when a new alarm is the next one.
	earlier chan struct{}
	// read says what the database's clock showed at a moment of ours. Times are counted
	// from there, not taken from our clock, which may be set while we wait.
	read reading
}

// reading is one look at the database's clock.
type reading struct {
	ours   time.Time // with its monotonic part
	theirs time.Time
}

func newAlarms() *alarms {
	now := time.Now()
	return &alarms{earlier: make(chan struct{}, 1), read: reading{now, now}}
}

// add sets an alarm.
func (a *alarms) add(al alarm) {
	a.mu.Lock()
	heap.Push(&a.queue, al)
	first := a.queue[0].delivery == al.delivery
	a.mu.Unlock()
	if first {
		select {
		case a.earlier <- struct{}{}:
		default:
		}
	}
}

// due takes up to limit alarms whose time has come, and says how long until the next.
func (a *alarms) due(now time.Time, limit int) ([]alarm, time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []alarm
	for len(a.queue) > 0 && len(out) < limit && !a.queue[0].at.After(now) {
		out = append(out, a.queue[0])
		heap.Pop(&a.queue)
	}
	if len(a.queue) == 0 {
		return out, time.Minute
	}
	return out, max(0, a.queue[0].at.Sub(now))
}

// local turns a time of the database's clock into one of ours. A wake-up never
// waits longer than its tier and a second, whatever its time says.
func (a *alarms) local(due time.Time, tier int, now time.Time) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	// A few milliseconds later than the estimate: an early look finds nothing.
	at := a.read.ours.Add(due.Sub(a.read.theirs)).Add(5 * time.Millisecond)
	if latest := now.Add(payment.Tiers[tier]*5/4 + time.Second); at.After(latest) {
		return latest
	}
	return at
}

func (a *alarms) setClock(r reading) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.read = r
}

// wake takes wake-ups over. It never waits for their times: a record that cannot
// be read is finished at once, the sweep finds its payment anyway.
func (r *Reconciler) wake(_ context.Context, batch []*kafka.Delivery) error {
	if len(batch) > 0 && batch[0].Topic == r.cfg.Callbacks { // a batch is of one partition
		r.called(batch)
		return nil
	}
	now := time.Now()
	for _, d := range batch {
		q, ok := readWake(d.Value)
		if !ok {
			r.cfg.Logger.Warn().Str("topic", d.Topic).Int64("offset", d.Offset).Msg("unreadable wake-up; the sweep takes its place")
			d.Finish()
			continue
		}
		tier := q.Query - 1
		r.alarms.add(alarm{
			at: r.alarms.local(q.DueAt, tier, now), tier: tier, delivery: d,
			wake: store.Wake{Payment: q.PaymentID, Query: q.Query},
		})
	}
	return nil
}

// readWake reads a wake-up; false for what names no payment or no tier.
func readWake(value []byte) (payment.Requery, bool) {
	var q payment.Requery
	err := json.Unmarshal(value, &q)
	return q, err == nil && q.PaymentID != uuid.Nil && q.Query >= 1 && q.Query <= len(payment.Tiers)
}

// ring picks the payments whose alarms go off, until ctx ends.
func (r *Reconciler) ring(ctx context.Context) {
	resync := time.NewTicker(10 * time.Second)
	defer resync.Stop()
	r.syncClock(ctx)
	for {
		rung, pause := r.alarms.due(time.Now(), r.cfg.Batch)
		if len(rung) > 0 {
			r.ringing.step(func() { r.answer(ctx, rung) })
			continue
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-r.alarms.earlier:
		case <-timer.C:
		case <-resync.C:
			r.syncClock(ctx)
		}
		timer.Stop()
	}
}

// answer picks what was rung for and is still due, and finishes the wake-ups:
// what they announced is leased now, or was never theirs.
func (r *Reconciler) answer(ctx context.Context, rung []alarm) {
	wakes, deliveries := make([]store.Wake, 0, len(rung)), make([]*kafka.Delivery, 0, len(rung))
	now := time.Now()
	var traces map[uuid.UUID]string
	for _, al := range rung {
		if al.delivery.Live() {
			if trace := tracing.Of(al.delivery.Headers); trace != "" {
				traces = noted(traces, al.wake.Payment, trace)
			}
			wakes, deliveries = append(wakes, al.wake), append(deliveries, al.delivery)
			r.cfg.Metrics.RequeryLateness(payment.Tiers[al.tier].String(), now.Sub(al.at))
		}
	}
	if len(wakes) == 0 {
		return
	}
	crashpoint.Here(crashpoint.WakeTaken)
	lease := newLease()
	ids, err := r.cfg.Store.PickWoken(ctx, lease, r.cfg.Settler.Rules().Lease, wakes)
	if err != nil {
		r.warn(ctx, err, "pick woken payments; the sweep takes their place")
	}
	kafka.Finish(deliveries)
	r.check(ctx, lease, ids, traces)
}

// noted makes the map when the first wake-up has a trace.
func noted(traces map[uuid.UUID]string, id uuid.UUID, trace string) map[uuid.UUID]string {
	if traces == nil {
		traces = make(map[uuid.UUID]string)
	}
	traces[id] = trace
	return traces
}

func (r *Reconciler) syncClock(ctx context.Context) {
	ours, theirs, err := r.cfg.Store.Clock(ctx)
	if err != nil {
		r.warn(ctx, err, "read the database's clock")
		return
	}
	r.alarms.setClock(reading{ours, theirs})
}

// alarmQueue is a heap by time; its methods are for container/heap.
type alarmQueue []alarm

// Len is the number of alarms.
func (q *alarmQueue) Len() int { return len(*q) }

// Less orders by time.
func (q *alarmQueue) Less(i, j int) bool { return (*q)[i].at.Before((*q)[j].at) }

// Swap exchanges two alarms.
func (q *alarmQueue) Swap(i, j int) { (*q)[i], (*q)[j] = (*q)[j], (*q)[i] }

// Push adds an alarm.
func (q *alarmQueue) Push(x any) {
	if al, ok := x.(alarm); ok {
		*q = append(*q, al)
	}
}

// Pop removes the last alarm.
func (q *alarmQueue) Pop() any {
	old := *q
	last := old[len(old)-1]
	*q = old[:len(old)-1]
	return last
}

package demo

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/settleonce/settleonce/internal/callers/signing"
	"github.com/settleonce/settleonce/internal/devstack"
	"github.com/settleonce/settleonce/internal/fleet"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/payment"
)

// player publishes a script: what is due together goes out in one batch.
type player struct {
	script    *script
	publisher *kafka.Publisher
	topic     string
	brokers   []string               // for transactions
	clients   *clients               // nil: nothing comes over HTTP
	keys      map[string]signing.Key // of callers that sign
	begun     time.Time

	// patient goes on publishing while the broker is away.
	patient bool

	transacted int // transactions that were written
	failed     int // tries to write the next one

	mu       sync.Mutex
	open     int        // sets of entangled transactions that are not written yet
	due      []delivery // by time
	late     []delivery // of triggers that fired, by time
	waiting  map[uuid.UUID][]trigger
	pending  int // triggers that have not fired
	sent     int
	dropped  int // records that are not published, as what they waited for does not come
	finished bool
}

func newPlayer(s *script, publisher *kafka.Publisher, topic string, brokers []string) *player {
	p := &player{script: s, publisher: publisher, topic: topic, brokers: brokers, waiting: map[uuid.UUID][]trigger{}, due: s.deliveries, open: len(s.entangled)}
	for _, t := range s.triggers {
		p.waiting[t.payment] = append(p.waiting[t.payment], t)
		p.pending++
	}
	return p
}

// beat is how long deliveries wait for company.
const beat = 20 * time.Millisecond

// play publishes everything, and ends when nothing is left to wait for.
func (p *player) play(ctx context.Context) error {
	p.begun = time.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.entangle(ctx) })
	group.Go(func() error { return p.deliver(ctx) })
	return group.Wait()
}

// deliver publishes what comes by itself, what waits for events, and transactions one
// after the other.
func (p *player) deliver(ctx context.Context) error {
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for {
		batch, left := p.take(time.Since(p.begun))
		if err := p.publish(ctx, batch); err != nil {
			return err
		}
		more, err := p.transact(ctx)
		if err != nil {
			return err
		}
		_, open := p.clients.progress()
		if !left && !more && open == 0 {
			p.finish()
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

func (p *player) take(now time.Duration) (batch []delivery, left bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for n < len(p.due) && p.due[n].at <= now && n < mostAtOnce {
		n++
	}
	batch, p.due = p.due[:n:n], p.due[n:]
	for n = 0; n < len(p.late) && p.late[n].at <= now; n++ {
		batch = append(batch, p.late[n])
	}
	p.late = p.late[n:]
	return batch, len(p.due)+len(p.late)+p.pending+p.open > 0
}

// mostAtOnce bounds a batch: after the broker was away, everything is due.
const mostAtOnce = 2000

// publishTries is how often what the broker does not acknowledge is sent where nobody
// breaks it: on a busy machine it may be slow.
const publishTries = 5

// publish sends until the broker has acknowledged everything: an error is
// "unknown", so the same records are sent again, which must not matter.
func (p *player) publish(ctx context.Context, batch []delivery) error {
	messages := make([]kafka.Message, 0, len(batch))
	for i := range batch {
		if c := batch[i].command; p.clients.takes(c) {
			p.clients.submit(ctx, c)
			continue
		}
		messages = append(messages, p.signed(&batch[i]))
	}
	for attempt := 1; len(messages) > 0; attempt++ {
		err := p.publisher.Publish(ctx, messages...)
		if err == nil {
			break
		}
		if attempt >= publishTries && !p.patient || ctx.Err() != nil {
			return fmt.Errorf("publish commands: %w", err)
		}
		if attempt >= publishTries {
			fleet.Pause(ctx, 200*time.Millisecond) // the end of the run is noticed above
		}
	}
	p.mu.Lock()
	p.sent += len(messages)
	p.mu.Unlock()
	return nil
}

// transact writes the next transaction when its time has come, and reports
// whether any are left.
func (p *player) transact(ctx context.Context) (left bool, err error) {
	if p.transacted == len(p.script.transactions) {
		return false, nil
	}
	t := p.script.transactions[p.transacted]
	if time.Since(p.begun) < t.at {
		return true, nil
	}
	records := encoded(t.commands)
	id := fmt.Sprintf("demo-upstream-%d", p.transacted)
	if err := devstack.PublishTransaction(ctx, p.brokers, id, p.topic, t.commit, records); err != nil {
		if p.failed++; (p.patient || p.failed < publishTries) && ctx.Err() == nil {
			return true, nil // again: what was committed after all is a repeat
		}
		return false, err
	}
	p.transacted++
	p.failed = 0
	p.mu.Lock()
	p.sent += len(records)
	p.mu.Unlock()
	return p.transacted < len(p.script.transactions), nil
}

// finish says that everything was published.
func (p *player) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finished = true
}

// heard fires the triggers that wait for an event, which tells of that time.
func (p *player) heard(id uuid.UUID, kind payment.EventType, occurred time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := p.waiting[id][:0]
	for _, t := range p.waiting[id] {
		if t.event != kind && !final(kind) {
			kept = append(kept, t)
			continue
		}
		p.pending--
		if t.event != kind {
			p.drop(t)
			continue
		}
		now := time.Since(p.begun) + t.after
		switch {
		case t.fresh:
			t.then.command.IssuedAt = time.Now().UTC().Add(t.after).Truncate(time.Millisecond)
		case t.behind != 0:
			t.then.command.IssuedAt = occurred.UTC().Add(t.behind).Truncate(time.Millisecond)
		}
		p.insert(delivery{at: now, command: &t.then.command})
		for _, pause := range t.again {
			p.insert(delivery{at: now + pause, command: &t.then.command})
		}
	}
	p.waiting[id] = kept
}

// drop leaves a payment out, and what waits for it.
func (p *player) drop(t trigger) {
	t.then.dropped = true
	p.dropped += 1 + len(t.again)
	id := t.then.id()
	for _, next := range p.waiting[id] {
		p.pending--
		p.drop(next)
	}
	delete(p.waiting, id)
}

// records is how many there will be, as far as is known now: what waits for an event
// that does not come is not published.
func (p *player) records() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.script.records - p.dropped
}

// giveUp leaves out what still waits for an event when patience is over, and
// returns how much that is.
func (p *player) giveUp() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, open := p.clients.progress()
	left := len(p.due) + len(p.late) + p.pending + p.open + open
	for _, triggers := range p.waiting {
		for _, t := range triggers {
			t.then.dropped = true
		}
	}
	return left
}

// final reports whether no other event may follow for long.
func final(kind payment.EventType) bool {
	switch kind {
	case payment.EventSucceeded, payment.EventDeclined, payment.EventRejected, payment.EventReviewRequired:
		return true
	case payment.EventAccepted, payment.EventUnknown, payment.EventEvidenceConflict:
		return false
	default:
		return false
	}
}

func (p *player) insert(d delivery) {
	i, _ := slices.BinarySearchFunc(p.late, d, func(a, b delivery) int { return cmp.Compare(a.at, b.at) })
	p.late = slices.Insert(p.late, i, d)
}

// progress is how many records were acknowledged, how many are due later, and
// how many payments an event is awaited for.
func (p *player) progress() (sent, due, pending int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	served, _ := p.clients.progress()
	return p.sent + served, len(p.due) + len(p.late) + p.open, p.pending
}

// done reports whether everything was published.
func (p *player) done() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.finished
}

// hold keeps the player waiting for what is still to come, n of it.
func (p *player) hold(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending += n
}

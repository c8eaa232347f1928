package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/settleonce/settleonce/internal/check"
	"github.com/settleonce/settleonce/internal/devstack"
	"github.com/settleonce/settleonce/internal/fleet"
	"github.com/settleonce/settleonce/payment"
)

// entangled are transactions of several producers that are open at once, and none
// of them is decided for a reader before the last step: the first producer's is open
// from the first step to the last.
type entangled struct {
	at    time.Duration
	steps []step
}

// step is one thing that a producer does: it writes in its transaction, then it may
// end it.
type step struct {
	producer     int
	write        []*payment.Command
	ends, commit bool
}

const (
	// entangledProducers is how many there are beside the first one.
	entangledProducers = 2
	// entangledRounds is how often each of them aborts, and then commits.
	entangledRounds = 3
	// entangledRecords is how many commands each transaction has: so many that a
	// producer's transactions meet in a partition.
	entangledRecords = 6
)

// entangle has producers abort and commit in turn, under the same transactional id, while
// those of the others are open. A reader gets all of it at once: it must drop what was
// aborted, and neither what its producer committed later nor what another one did (G16).
func (w *writer) entangle() {
	e := entangled{at: w.script.length/4 + time.Duration(w.random.Int64N(int64(w.script.length/4)))}
	commands := func(ends check.Ends) (out []*payment.Command) {
		for range entangledRecords {
			p := w.payment(ends, "")
			p.issue(e.at)
			out = append(out, &p.command)
		}
		w.script.later += len(out)
		return out
	}
	add := func(s step) { e.steps = append(e.steps, s) }
	add(step{producer: 0, write: append(commands(endsCharged), commands(endsCharged)...)})
	never := check.Ends{Guarantee: "G16", Never: true}
	for range entangledRounds {
		// Each has written what it aborts before any of them goes on.
		for n := range entangledProducers {
			add(step{producer: 1 + n, write: commands(never)})
		}
		for _, n := range w.random.Perm(entangledProducers) {
			add(step{producer: 1 + n, ends: true})
			add(step{producer: 1 + n, write: commands(endsCharged), ends: w.random.IntN(2) == 0, commit: true})
		}
		for n := range entangledProducers { // nothing is left to do for whoever has committed
			add(step{producer: 1 + n, ends: true, commit: true})
		}
	}
	add(step{producer: 0, ends: true, commit: true})
	w.script.entangled = append(w.script.entangled, e)
}

// entangle writes the entangled transactions when their time has come, beside all
// the rest.
func (p *player) entangle(ctx context.Context) error {
	for i := range p.script.entangled {
		e := &p.script.entangled[i]
		if !fleet.Pause(ctx, e.at-time.Since(p.begun)) {
			return ctx.Err()
		}
		for try := 1; ; try++ {
			n, err := p.write(ctx, i, e)
			if err == nil {
				p.mu.Lock()
				p.open--
				p.sent += n
				p.mu.Unlock()
				break
			}
			if try >= publishTries && !p.patient || ctx.Err() != nil {
				return fmt.Errorf("write transactions that are open at once: %w", err)
			}
			if !fleet.Pause(ctx, time.Second) { // again from the start: what was committed is a repeat
				return ctx.Err()
			}
		}
	}
	return nil
}

// write does all steps, and returns how many records it wrote.
func (p *player) write(ctx context.Context, number int, e *entangled) (records int, err error) {
	producers := map[int]*devstack.Transactor{}
	defer func() {
		for _, t := range producers {
			t.Close()
		}
	}()
	for _, s := range e.steps {
		t := producers[s.producer]
		if t == nil {
			if t, err = devstack.NewTransactor(p.brokers, fmt.Sprintf("demo-entangled-%d-%d", number, s.producer), p.topic); err != nil {
				return 0, err
			}
			producers[s.producer] = t
		}
		if len(s.write) > 0 {
			if err := t.Write(ctx, encoded(s.write)); err != nil {
				return 0, err
			}
			records += len(s.write)
		}
		if s.ends {
			if err := t.End(ctx, s.commit); err != nil {
				return 0, err
			}
		}
	}
	return records, nil
}

// encoded are commands as records of a transaction.
func encoded(commands []*payment.Command) []devstack.TransactionRecord {
	records := make([]devstack.TransactionRecord, len(commands))
	for i, c := range commands {
		records[i] = devstack.TransactionRecord{Key: []byte(c.IdempotencyKey.String()), Value: c.AppendJSON(nil)}
	}
	return records
}

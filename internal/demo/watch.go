package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/check"
	"github.com/settleonce/settleonce/payment"
)

const (
	// glance is how often topics are looked at.
	glance = 250 * time.Millisecond
	// silence is how long nothing may come after all is settled: a charge or an
	// answer too many would come then.
	silence = 2 * time.Second
)

// watcher reads along, fires the player's triggers, and knows when everything
// that was published is settled.
type watcher struct {
	run *run

	states        map[uuid.UUID]payment.State
	replies, dead int
	// news is when something came last; checked when all was compared last.
	news, checked time.Time
	missing       []string
}

// watch ends when all is settled and silent, or when patience is over.
func (r *run) watch(ctx context.Context) error {
	w := &watcher{run: r, states: map[uuid.UUID]payment.State{}, news: time.Now()}
	for {
		settled, err := w.round(ctx)
		if err != nil {
			return err
		}
		w.tell()
		switch {
		case settled && time.Since(w.news) > silence:
			r.settled = w.news.Sub(r.begun)
			return nil
		case time.Since(r.begun) > r.script.length+r.cfg.Patience:
			r.settled, r.unsettled = time.Since(r.begun), w.waitsFor()
			return nil
		}
		if err := pause(ctx, glance); err != nil {
			return err
		}
	}
}

// round looks, and reports whether all is settled. While things are broken on
// purpose the broker may be away.
func (w *watcher) round(ctx context.Context) (settled bool, err error) {
	if err = w.look(ctx); err == nil {
		settled, err = w.settled(ctx)
	}
	if err != nil && w.run.cfg.Disturb != nil && ctx.Err() == nil {
		w.news = time.Now()
		return false, nil
	}
	return settled, err
}

// look reads what is new in events, replies and dead letters.
func (w *watcher) look(ctx context.Context) error {
	t := w.run.tail
	events, err := t.Read(ctx, t.Topics.Events, &t.Evidence.Events)
	if err != nil {
		return err
	}
	for i := range events {
		id, err := uuid.Parse(check.Header(&events[i], "ce_subject"))
		if err != nil {
			continue // the judge will say so
		}
		kind := payment.EventType(check.Header(&events[i], "ce_type"))
		w.states[id] = stateOf[kind]
		w.run.player.heard(id, kind)
	}
	replies, err := t.Read(ctx, t.Topics.Replies, &t.Evidence.Replies)
	if err != nil {
		return err
	}
	rejected := payment.ReplyRejected.CEType()
	for i := range replies {
		if id, err := uuid.Parse(check.Header(&replies[i], "ce_subject")); err == nil && check.Header(&replies[i], "ce_type") == rejected {
			w.states[id] = payment.Rejected
		}
	}
	dead, err := t.Read(ctx, t.Topics.DeadLetter, &t.Evidence.DeadLetters)
	if err != nil {
		return err
	}
	w.replies += len(replies)
	w.dead += len(dead)
	if len(events)+len(replies)+len(dead) > 0 {
		w.news = time.Now()
	}
	return nil
}

// stateOf is the state that an event tells, for the progress.
var stateOf = map[payment.EventType]payment.State{
	payment.EventSucceeded: payment.Succeeded, payment.EventDeclined: payment.Declined, payment.EventRejected: payment.Rejected,
	payment.EventUnknown: payment.Unknown, payment.EventReviewRequired: payment.Review, payment.EventEvidenceConflict: payment.Review,
}

// settled compares all that was published with all that came, once after each
// news. Kills that are still to come are waited for too.
func (w *watcher) settled(ctx context.Context) (bool, error) {
	if !w.run.player.done() || !w.run.crew.rested() {
		return false, nil
	}
	if w.run.published == 0 {
		w.run.published = time.Since(w.run.begun)
	}
	if w.checked.Before(w.news) {
		now := time.Now()
		if err := w.run.tail.All(ctx); err != nil {
			return false, err
		}
		evidence := w.run.tail.Snapshot()
		w.missing = check.Outstanding(&evidence, check.Rules{Callers: callers})
		w.checked = now
	}
	return len(w.missing) == 0, nil
}

// waitsFor says what is still to come.
func (w *watcher) waitsFor() []string {
	missing := w.missing
	if _, due, pending := w.run.player.progress(); due+pending > 0 {
		missing = append(missing, fmt.Sprintf("%d commands that are published after an event of another payment", due+pending))
	}
	if !w.run.crew.rested() {
		missing = append(missing, "killed processes that start again")
	}
	return missing
}

// tell reports the progress.
func (w *watcher) tell() {
	sent, due, pending := w.run.player.progress()
	finished := w.run.player.done()
	p := Progress{
		Phase: "publishing", Elapsed: time.Since(w.run.begun), Published: sent, Of: w.run.script.records,
		Payments: w.run.script.ends(), Replies: w.replies, DeadLetters: w.dead,
	}
	switch {
	case finished:
		p.Phase = "settling"
	case due == 0 || pending > 0 && p.Elapsed > w.run.script.length:
		p.Phase = "waiting for events to publish the rest"
	}
	for _, state := range w.states {
		p.count(state)
	}
	killed, _ := w.run.crew.losses()
	for _, n := range killed {
		p.Killed += n
	}
	w.run.cfg.Progress(p)
}

func (p *Progress) count(state payment.State) {
	switch state {
	case payment.Succeeded:
		p.Succeeded++
	case payment.Declined:
		p.Declined++
	case payment.Rejected:
		p.Rejected++
	case payment.Review:
		p.InReview++
	default:
		p.Unknown++
		return
	}
	p.Ended++
}

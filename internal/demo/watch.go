package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/check"
	"github.com/settleonce/settleonce/internal/fleet"
	"github.com/settleonce/settleonce/internal/kafka"
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
	versions      map[uuid.UUID]int // of the events that told them
	replies, dead int
	// news is when something came last; checked when all was compared last; seeing when
	// all could be looked at last; broken when something was still being broken, or a
	// killed process not back.
	news, checked, seeing, broken time.Time
	swept                         time.Time
	missing                       []string
	// beside is what a service downstream has not read, and what is under way in a shop,
	// once nothing else is missing.
	beside []string
}

// watch ends when all is settled and silent, or when patience is over.
func (r *run) watch(ctx context.Context) error {
	w := &watcher{run: r, states: map[uuid.UUID]payment.State{}, versions: map[uuid.UUID]int{}, news: time.Now(), seeing: time.Now(), broken: r.begun}
	r.tail.Seen = w.seen
	for {
		settled, err := w.round(ctx)
		if err != nil {
			return err
		}
		w.tell()
		if !r.crew.rested() {
			w.broken = time.Now()
		}
		switch {
		case settled && time.Since(w.news) > silence:
			r.settled = w.news.Sub(r.begun)
			return nil
		case w.impatient(time.Now()):
			r.settled, r.unsettled = time.Since(r.begun), w.waitsFor()
			return nil
		}
		if !fleet.Pause(ctx, glance) {
			return ctx.Err()
		}
	}
}

// impatient reports whether all that was published had its time to settle. What is
// broken for longer than the script lasts keeps it from that; on a busy machine faults wait
// for their turns, and have as long for it.
func (w *watcher) impatient(now time.Time) bool {
	begun, length, patience := w.run.begun, w.run.script.length, w.run.cfg.Patience
	whole := min(max(w.broken.Sub(begun), length), length+patience)
	return now.Sub(begun) > whole+patience
}

// blind is how long a broker that nobody breaks may give no answers: on a busy machine
// some are late.
const blind = time.Minute

// round looks, and reports whether all is settled. While things are broken on
// purpose the broker may be away.
func (w *watcher) round(ctx context.Context) (settled bool, err error) {
	if err = w.look(ctx); err == nil {
		settled, err = w.settled(ctx)
	}
	switch {
	case err == nil:
		w.seeing = time.Now()
	case ctx.Err() == nil && (w.run.cfg.Disturb != nil || time.Since(w.seeing) < blind):
		w.news = time.Now()
		return false, nil
	}
	return settled, err
}

// look reads what is new: events, replies and dead letters each time, which
// triggers wait for; the rest now and then, so that it is not all there at the end.
func (w *watcher) look(ctx context.Context) error {
	t := w.run.tail
	if time.Since(w.swept) >= sweepEvery {
		w.swept = time.Now()
		return t.All(ctx)
	}
	for _, topic := range slices.Concat(t.Topics.AllEvents(), t.Topics.AllReplies(), []string{t.Topics.DeadLetter}) {
		if err := t.Read(ctx, topic); err != nil {
			return err
		}
	}
	return nil
}

// seen takes notice of a record.
func (w *watcher) seen(r *kafka.Record) {
	topics := &w.run.tail.Topics
	switch {
	case w.run.cfg.Shop.owns(r.Value): // the progress is that of the script
		w.news = time.Now()
	case slices.Contains(topics.AllEvents(), r.Topic):
		w.event(r)
	case slices.Contains(topics.AllReplies(), r.Topic):
		w.reply(r)
	case r.Topic == topics.DeadLetter:
		w.dead++
		w.news = time.Now()
	}
}

// sweepEvery is how often all topics are read.
const sweepEvery = 2 * time.Second

func (w *watcher) event(r *kafka.Record) {
	w.news = time.Now()
	id, err := uuid.Parse(check.Header(r, "ce_subject"))
	if err != nil {
		return // the judge will say so
	}
	var told struct {
		OccurredAt time.Time `json:"occurredAt"`
		Version    int       `json:"version"`
	}
	if json.Unmarshal(r.Value, &told) != nil {
		return // here too
	}
	kind := payment.EventType(check.Header(r, "ce_type"))
	if told.Version >= w.versions[id] { // an operator may have an older one published again
		w.states[id], w.versions[id] = stateOf[kind], told.Version
	}
	w.run.player.heard(id, kind, told.OccurredAt)
	w.run.roster.heard(id, kind)
}

func (w *watcher) reply(r *kafka.Record) {
	w.news = time.Now()
	w.replies++
	if id, err := uuid.Parse(check.Header(r, "ce_subject")); err == nil && check.Header(r, "ce_type") == payment.ReplyRejected.CEType() {
		w.states[id] = payment.Rejected
		w.run.player.heard(id, payment.EventRejected, time.Time{}) // what was never claimed has no event
	}
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
		w.missing = check.Outstanding(w.run.tail.Evidence(), check.Rules{Callers: w.run.roster.names})
		w.checked = now
	}
	if len(w.missing) > 0 {
		return false, nil
	}
	var err error
	w.beside, err = w.run.beside(ctx)
	return len(w.beside) == 0 && err == nil, err
}

// patiently does again what failed, for a while.
func patiently(ctx context.Context, do func() error) error {
	for end := time.Now().Add(blind); ; {
		err := do()
		if err == nil || time.Now().After(end) || !fleet.Pause(ctx, glance) {
			return err
		}
	}
}

// beside is what the services beside the workers still have to do.
func (r *run) beside(ctx context.Context) ([]string, error) {
	unread, err := r.cfg.Downstream.left(ctx)
	if err != nil {
		return unread, err
	}
	underWay, err := r.cfg.Shop.left(ctx)
	return append(unread, underWay...), err
}

// waitsFor says what is still to come.
func (w *watcher) waitsFor() []string {
	missing := slices.Concat(w.missing, w.beside)
	if n := w.run.player.giveUp(); n > 0 {
		missing = append(missing, fmt.Sprintf("%d commands that are published after an event of another payment", n))
	}
	if !w.run.crew.rested() {
		missing = append(missing, "killed processes that start again")
	}
	return missing
}

// still ends the workers, so that topics, tables and books, which are read one after the
// other, tell of the same moment: a payment in review may be settled at any time. What
// the relays published last is waited for in the services beside them; one that does not
// get through it is not settled.
func (r *run) still(ctx context.Context) error {
	for _, roles := range [][]string{{RoleGateway, RoleConsumer, RoleReconciler}, {RoleOutbox}} {
		if err := r.crew.end(ctx, roles); err != nil && r.cfg.Disturb == nil {
			return err
		}
	}
	const patience = 2 * time.Minute
	for end := time.Now().Add(patience); len(r.unsettled) == 0; {
		left, err := r.beside(ctx)
		switch {
		case len(left) == 0 && err == nil:
			return nil
		case time.Now().After(end):
			r.unsettled = left
		case !fleet.Pause(ctx, glance):
			return ctx.Err()
		}
	}
	return nil
}

// tell reports the progress.
func (w *watcher) tell() {
	sent, due, pending := w.run.player.progress()
	finished := w.run.player.done()
	p := Progress{
		Phase: "publishing", Elapsed: time.Since(w.run.begun), Published: sent, Of: w.run.player.records(),
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

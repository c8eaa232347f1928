package outbox

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/settleonce/settleonce/internal/crashpoint"
	"github.com/settleonce/settleonce/internal/kafka"
)

// A relay publishes in lanes, so that one reads while another publishes, and so
// that a partition without a leader holds up only its own shards.
const (
	normalLanes = 2
	slowLane    = normalLanes
	lanes       = normalLanes + 1
)

func laneOf(s *shard) int {
	if s.troubled {
		return slowLane
	}
	return int(s.id) % normalLanes
}

const (
	// pace is the least time from one cycle to the next while there is little
	// to do: every cycle costs a commit, and rows that wait a moment share one.
	pace = 4 * time.Millisecond
	// maxCycleBytes bounds what one cycle keeps in memory.
	maxCycleBytes = 16 << 20
	firstBackoff  = 50 * time.Millisecond
	maxBackoff    = 2 * time.Second
)

// lane publishes some of the relay's shards, in cycles: one statement marks what
// the last cycle published and reads what comes next, one call publishes it.
type lane struct {
	relay  *Relay
	kind   int
	wake   chan struct{} // capacity 1: there may be something to read
	held   []*shard      // not to be released by others
	open   settled       // published or poisonous, and not yet marked
	errors int           // of the database, in a row

	// missing holds topics that the cluster just said it does not have: asking
	// again for every row would hold up all the others.
	missing map[string]time.Time
	names   names
}

func newLane(r *Relay, kind int) *lane {
	return &lane{relay: r, kind: kind, wake: make(chan struct{}, 1), missing: make(map[string]time.Time), names: make(names)}
}

func (l *lane) nudge() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run works until ctx ends; then it marks what is published, so that the next
// owner does not publish it again.
func (l *lane) run(ctx context.Context) {
	for ctx.Err() == nil {
		start := time.Now()
		published, behind := l.cycle(ctx)
		switch {
		case l.errors > 0:
			l.wait(ctx, jitter(backoff(l.errors)), nil)
		case published == 0:
			l.wait(ctx, l.relay.cfg.Poll, l.wake)
		case !behind:
			l.wait(ctx, pace-time.Since(start), nil)
		}
	}
	if len(l.open.rows) > 0 || len(l.open.parked) > 0 {
		l.exchange(context.WithoutCancel(ctx), nil)
	}
	l.relay.board.giveBack(l.held, time.Now())
	l.held = nil
}

// wait returns after d, or when wake has something, or when ctx ends.
func (l *lane) wait(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-wake:
	case <-t.C:
	}
}

// cycle marks, reads and publishes once. It reports how many rows it presented
// to Kafka and whether more are waiting. The order is the model's: the lease and
// the producer epoch were taken before the read, the read checks the lease, and
// a key's next row is not read before its previous one is marked (G10).
func (l *lane) cycle(ctx context.Context) (published int, behind bool) {
	work := l.relay.board.take(l, time.Now())
	if len(work) == 0 && len(l.held) == 0 {
		return 0, false
	}
	// A stop must not leave it open whether the marks were committed.
	picked, ok := l.exchange(context.WithoutCancel(ctx), work)
	if !ok || ctx.Err() != nil {
		return 0, false
	}
	for _, p := range picked {
		published += len(p.rows)
		behind = behind || p.behind
	}
	if published > 0 {
		l.publish(ctx, picked)
	}
	return published, behind
}

// exchange sends the marks of the last cycle and reads the next rows of work, in
// one round trip and one transaction: its commit comes before anything it read
// is published. Afterwards the lane holds work, and nothing else.
func (l *lane) exchange(ctx context.Context, work []*shard) ([]*pick, bool) {
	r := l.relay
	r.hooks.beforeMark(l.open)
	ctx, cancel := context.WithTimeoutCause(ctx, r.cfg.share(), errDatabaseSlow)
	defer cancel()
	picked, marked, err := l.roundTrip(ctx, work)
	if err != nil {
		l.errors++
		l.held = union(l.held, work)
		r.board.resetMarks()
		r.stats.databaseErrors.Add(1)
		if seldom(l.errors) {
			r.log.Warn().Err(err).Int("failures", l.errors).Int("unmarked", len(l.open.rows)).
				Msg("outbox: cannot reach the database, messages wait")
		}
		return nil, false
	}
	if marked > 0 {
		crashpoint.Here(crashpoint.RelayMarked)
	}
	again := l.errors > 0 // then a commit whose answer was lost may have marked them
	l.errors = 0
	if late := len(l.open.rows) - int(marked); late > 0 && !again {
		// Another relay owns these rows' shard now and will publish them again.
		r.stats.lateMarks.Add(uint64(late))
		r.log.Warn().Int("rows", late).Msg("outbox: lease lost between publishing and marking, the new owner repeats these messages")
		r.tendNow()
	}
	l.open.reset()
	if r.board.giveBack(without(l.held, work), time.Now()) {
		r.tendNow()
		r.prepareNow()
	}
	l.held = work
	return picked, true
}

// publish presents the picked rows to Kafka and sorts the answers into marks,
// parked rows and rows that stay for the next cycle, row by row (B5).
func (l *lane) publish(ctx context.Context, picked []*pick) {
	r := l.relay
	batches := l.batches(picked)
	ctx, cancel := l.publishContext(ctx, picked)
	defer cancel()
	r.hooks.beforePublish(picked)
	crashpoint.Here(crashpoint.RelayRead)
	spans := l.trace(batches)
	results := r.cfg.Kafka.PublishFenced(ctx, batches)
	endSpans(spans, results)
	crashpoint.Here(crashpoint.RelayPublished)
	r.hooks.afterPublish(picked)
	for i, p := range picked {
		l.settle(p, results[i].Errors)
	}
}

// publishContext ends before the lease of any of the shards does, and sooner in
// the fast lanes: there, waiting for one partition makes all the others wait. A
// stop lets the publish end by itself.
func (l *lane) publishContext(ctx context.Context, picked []*pick) (context.Context, context.CancelFunc) {
	limit := l.relay.cfg.share()
	if l.kind != slowLane {
		limit = l.relay.cfg.Lease / 10
	}
	deadline := time.Now().Add(limit)
	for _, p := range picked {
		if end := l.relay.board.deadlineOf(p.shard).Add(-l.relay.cfg.Lease / 10); end.Before(deadline) {
			deadline = end
		}
	}
	return l.relay.hooks.publishContext(context.WithDeadlineCause(context.WithoutCancel(ctx), deadline, errKafkaSlow))
}

// settle sorts one shard's answers.
func (l *lane) settle(p *pick, answers []error) {
	var v verdict
	var done uint64
	for i, err := range answers {
		row := &p.rows[i]
		switch {
		case err == nil:
			l.open.published(p.shard, row)
			done++
		case kafka.Permanent(err):
			if errors.Is(err, kafka.ErrUnknownTopic) {
				l.missing[row.topic] = time.Now().Add(missingFor)
			}
			l.park(p.shard, row, err)
		default:
			v.add(err)
		}
	}
	l.relay.stats.published.Add(done)
	l.conclude(p.shard, v)
}

// verdict sums up what went wrong in a shard's publish.
type verdict struct {
	failed, fenced, renew bool
	first                 error
}

func (v *verdict) add(err error) {
	v.fenced = v.fenced || errors.Is(err, kafka.ErrFenced)
	v.renew = v.renew || errors.Is(err, kafka.ErrRenew)
	v.failed = true
	if v.first == nil {
		v.first = err
	}
}

// conclude decides how a shard goes on after a publish.
func (l *lane) conclude(s *shard, v verdict) {
	r := l.relay
	if v.failed {
		r.stats.publishErrors.Add(1)
	}
	switch pause := r.board.concluded(s, v, time.Now()); {
	case v.fenced:
		r.stats.fenced.Add(1)
		r.log.Warn().Int16("shard", s.id).Err(v.first).
			Msg("outbox: shut out by a newer producer, giving the shard up; if this repeats, another installation uses the same transactional prefix")
		r.tendNow()
	case v.failed && seldom(s.failures):
		r.log.Warn().Int16("shard", s.id).Err(v.first).Int("failures", s.failures).Stringer("pause", pause).
			Msg("outbox: publish failed, trying again")
	}
}

// park records why a row cannot be published; its key waits from now on (B4).
func (l *lane) park(s *shard, row *row, err error) {
	l.open.park(s, row, err.Error())
	l.relay.stats.parked.Add(1)
	l.relay.log.Error().Int16("shard", s.id).Int64("seq", row.seq).Stringer("ce_id", row.id).Str("topic", row.topic).Err(err).
		Msg("outbox: message cannot be published and is parked, later ones of its key wait; repair it, then set parked_reason = NULL")
}

// seldom picks the failures of a row of them that are worth a line in the log.
func seldom(failures int) bool { return failures == 1 || failures%20 == 0 }

func backoff(failures int) time.Duration {
	return min(firstBackoff<<min(failures-1, 10), maxBackoff)
}

// missingFor is how long a topic stays missing without being asked for again.
const missingFor = 5 * time.Second

var (
	errDatabaseSlow = errors.New("outbox: the database did not answer within a third of the lease")
	errKafkaSlow    = errors.New("outbox: the brokers did not answer in time")
)

// names keeps one copy of each topic and type, of which there are few.
type names map[string]string

const maxNames = 1000

func (n names) of(raw []byte) string {
	if name, ok := n[string(raw)]; ok {
		return name
	}
	if len(n) >= maxNames {
		clear(n)
	}
	name := string(raw)
	n[name] = name
	return name
}

func without(list, drop []*shard) []*shard {
	return slices.DeleteFunc(slices.Clone(list), func(s *shard) bool { return slices.Contains(drop, s) })
}

func union(a, b []*shard) []*shard {
	return append(without(a, b), b...)
}

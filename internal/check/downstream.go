package check

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Downstream is what a service behind the events has done at one moment, by its own
// tables and by those of its inbox.
type Downstream struct {
	// Consumer is its name, Topic what it consumes, with its prefix.
	Consumer, Topic string
	// Applied are its applications, in the order of each payment.
	Applied []Application
	// Believed is what it takes each payment for.
	Believed map[uuid.UUID]Belief
	// Markers are the events that its inbox knows, Versions the highest of each payment.
	Markers  map[uuid.UUID]bool
	Versions map[uuid.UUID]int
	// Behind says that it may not have read all events: what is missing is not judged.
	Behind bool
}

// Application is one event that was applied.
type Application struct {
	Event, Payment uuid.UUID
	Version        int
}

// Belief is the effect of all that was applied to a payment.
type Belief struct {
	State   string
	Version int
	Event   uuid.UUID
	// Times is how many events were applied.
	Times int
}

// ReadDownstream reads the tables of internal/downstream in one read-only snapshot.
// The topic is not read.
func ReadDownstream(ctx context.Context, db Queryer, consumer string) (*Downstream, error) {
	tx, err := db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return nil, fmt.Errorf("read the downstream database: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	d := &Downstream{Consumer: consumer, Believed: map[uuid.UUID]Belief{}, Markers: map[uuid.UUID]bool{}, Versions: map[uuid.UUID]int{}}
	var id uuid.UUID
	var a Application
	var b Belief
	var version int
	for _, read := range []struct {
		sql  string
		args []any
		into []any
		keep func() error
	}{
		{
			"SELECT event, payment, version FROM downstream.applied ORDER BY n", nil,
			[]any{&a.Event, &a.Payment, &a.Version},
			func() error { d.Applied = append(d.Applied, a); return nil },
		},
		{
			"SELECT payment, state, version, event, times FROM downstream.payments", nil,
			[]any{&id, &b.State, &b.Version, &b.Event, &b.Times},
			func() error { d.Believed[id] = b; return nil },
		},
		{
			"SELECT id FROM settleonce_inbox.processed WHERE consumer = $1",
			[]any{consumer},
			[]any{&id},
			func() error { d.Markers[id] = true; return nil },
		},
		{
			"SELECT payment, version FROM settleonce_inbox.versions WHERE consumer = $1",
			[]any{consumer},
			[]any{&id, &version},
			func() error { d.Versions[id] = version; return nil },
		},
	} {
		rows, err := tx.Query(ctx, read.sql, read.args...)
		if err == nil {
			_, err = pgx.ForEachRow(rows, read.into, read.keep)
		}
		if err != nil {
			return nil, fmt.Errorf("read the downstream database: %w", err)
		}
	}
	return d, nil
}

// refusal is a dead letter of a service downstream.
type refusal struct {
	consumer, reason, key string
	place                 place
}

// DownstreamCounts are what a service behind the events did.
type DownstreamCounts struct {
	// Applied are the applications of events, Payments what they were about.
	Applied  int `json:"applied"`
	Payments int `json:"payments"`
	// Repeats are records of the topic that repeat another one: none of them may be
	// applied. What is delivered again by a crash or a reset comes on top.
	Repeats int `json:"repeatsInTheTopic"`
}

// downstream: each event was applied once, neither more often nor never, in the order
// of its payment, in one transaction with its marker (G5, G7, G10).
func (j *judge) downstream() {
	d := j.rules.Downstream
	if d == nil {
		j.unseen("G7", "services downstream", "the tables of none were read")
		return
	}
	times := j.applications(d)
	j.markers(d, times)
	for _, r := range j.evidence.refusals {
		if r.consumer == d.Consumer {
			j.brokenf("G5", r.key, "%s put an event into the dead letters, at %s: %s", d.Consumer, r.place, r.reason)
		}
	}
	known := map[uuid.UUID]bool{}
	for _, id := range sortedKeys(j.evidence.byID) {
		j.appliedAll(d, j.evidence.byID[id], times, known)
	}
	if !j.rules.Incomplete {
		for _, id := range sortedKeys(times) {
			if !known[id] {
				j.brokenf("G6", "", "%s applied event %s, which is not in the topic", d.Consumer, id)
			}
		}
	}
	if d.Behind || j.rules.Running != nil {
		j.unseen("G5", "whether "+d.Consumer+" has applied every event", "it was still at work")
	}
}

// applications counts how often each event was applied, and looks at their order.
func (j *judge) applications(d *Downstream) map[uuid.UUID]int {
	times, last := map[uuid.UUID]int{}, map[uuid.UUID]int{}
	for _, a := range d.Applied {
		j.check("G7")
		if times[a.Event]++; times[a.Event] > 1 {
			j.brokenf("G7", j.keyOfPayment(a.Payment), "%s applied event %s (version %d) again", d.Consumer, a.Event, a.Version)
			continue
		}
		j.check("G10")
		if a.Version < last[a.Payment] {
			j.brokenf("G10", j.keyOfPayment(a.Payment), "%s applied version %d after version %d", d.Consumer, a.Version, last[a.Payment])
		}
		last[a.Payment] = a.Version
	}
	return times
}

// markers: there is one for each event that was applied, and no other.
func (j *judge) markers(d *Downstream, times map[uuid.UUID]int) {
	for _, id := range sortedKeys(times) {
		if !d.Markers[id] {
			j.brokenf("G7", "", "%s applied event %s, and its inbox has no marker", d.Consumer, id)
		}
	}
	for _, id := range sortedKeys(d.Markers) {
		if times[id] == 0 {
			j.brokenf("G7", "", "the inbox of %s has a marker of event %s, which was not applied", d.Consumer, id)
		}
	}
}

// appliedAll: of one payment each event was applied, and the effect is that of all of
// them.
func (j *judge) appliedAll(d *Downstream, of *dossier, times map[uuid.UUID]int, known map[uuid.UUID]bool) {
	var latest *event
	n, missing := 0, false
	for _, e := range of.events {
		if e.topic != d.Topic || known[e.id] {
			continue
		}
		known[e.id] = true
		if n++; latest == nil || e.version > latest.version {
			latest = e
		}
		missing = missing || times[e.id] == 0
		if times[e.id] == 0 && !d.Behind && j.rules.Running == nil {
			j.brokenf("G5", e.key.String(), "%s never applied the event of version %d at %s", d.Consumer, e.version, e.place)
		}
	}
	if latest != nil && !missing {
		j.believed(d, of, latest, n)
	}
}

// believed: the effect is that of n events, of which one is the latest.
func (j *judge) believed(d *Downstream, of *dossier, latest *event, n int) {
	switch b := d.Believed[of.id]; {
	case b.Event != latest.id || b.State != latest.state.String() || b.Version != latest.version:
		j.brokenf("G7", latest.key.String(), "%s believes %q of version %d, and the last event is %q of version %d",
			d.Consumer, b.State, b.Version, latest.state, latest.version)
	case b.Times != n:
		j.brokenf("G7", latest.key.String(), "%s did %d times what %d events ask for", d.Consumer, b.Times, n)
	case d.Versions[of.id] != latest.version:
		j.brokenf("G7", latest.key.String(), "the inbox of %s has seen version %d, and the last event is of version %d", d.Consumer, d.Versions[of.id], latest.version)
	}
}

func (j *judge) keyOfPayment(id uuid.UUID) string {
	if d, ok := j.evidence.known(id); ok {
		return d.key()
	}
	return id.String()
}

func (j *judge) countDownstream() *DownstreamCounts {
	d := j.rules.Downstream
	if d == nil {
		return nil
	}
	c := &DownstreamCounts{Applied: len(d.Applied), Payments: len(d.Believed)}
	for _, of := range j.evidence.byID {
		seen := map[uuid.UUID]bool{}
		for _, e := range of.events {
			if e.topic == d.Topic && seen[e.id] {
				c.Repeats++
			}
			seen[e.id] = true
		}
		c.Repeats += of.replayed
	}
	return c
}

func sortedKeys[V any](m map[uuid.UUID]V) []uuid.UUID {
	return slices.SortedFunc(maps.Keys(m), func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
}

package check

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/downstream"
	"github.com/settleonce/settleonce/internal/pgtest"
	"github.com/settleonce/settleonce/payment"
)

// behind is a world with a service behind its events, which did all that it should.
type behind struct {
	*world

	service *Downstream
}

// newBehind has a payment whose outcome came late, one that was declined, and a relay
// and an operator that published an event again.
func newBehind(t *testing.T) *behind {
	t.Helper()
	w := newWorld(t)
	b := &behind{world: w, service: &Downstream{
		Consumer: "downstream", Topic: w.topics.Events, Believed: map[uuid.UUID]Belief{}, Markers: map[uuid.UUID]bool{}, Versions: map[uuid.UUID]int{},
	}}
	c := w.command()
	r := w.deliver(c)
	b.apply(w.tell(c, payment.EventUnknown, payment.Unknown), payment.EventUnknown)
	b.repeat()
	e := w.tell(c, payment.EventSucceeded, payment.Succeeded)
	b.apply(e, payment.EventSucceeded)
	w.ask(c, "settled")
	w.answer(r, c, payment.ReplyOutcome, withOutcome(e))
	b.repeat("settleonce_replay", "5b0c9c4e-6a38-4c58-9f3e-f6ad7a7d2f5e")
	other := w.command()
	w.declined(other)
	d := payment.Event{PaymentID: other.Identity().PaymentID(), Version: 1, State: payment.Declined}
	b.apply(d, payment.EventDeclined)
	return b
}

// repeat puts the last event into the topic again.
func (b *behind) repeat(headers ...string) {
	last := b.evidence.Events[len(b.evidence.Events)-1]
	again := b.record(last.Topic, last.Key, last.Value, headers...)
	again.Headers = append(again.Headers, last.Headers...)
	b.evidence.Events = append(b.evidence.Events, again)
}

// apply is what the service does with an event.
func (b *behind) apply(e payment.Event, kind payment.EventType) {
	id := payment.EventID(e.PaymentID, e.Version, kind)
	b.service.Applied = append(b.service.Applied, Application{Event: id, Payment: e.PaymentID, Version: e.Version})
	b.service.Markers[id] = true
	b.service.Versions[e.PaymentID] = e.Version
	b.service.Believed[e.PaymentID] = Belief{State: e.State.String(), Version: e.Version, Event: id, Times: b.service.Believed[e.PaymentID].Times + 1}
}

func (b *behind) judgeAll() Verdict {
	rules := b.rules()
	rules.Downstream = b.service
	return Judge(b.file(), rules)
}

// A service that did what it should breaks nothing, and repeats are counted apart.
func TestDownstream_HoldsForWhatIsAllowed(t *testing.T) {
	t.Parallel()
	b := newBehind(t)
	v := b.judgeAll()
	require.Empty(t, v.Violations)
	require.Equal(t, &DownstreamCounts{Applied: 3, Payments: 2, Repeats: 2}, v.Counts.Downstream)
	for _, u := range v.Unchecked {
		require.NotContains(t, u.What, "downstream")
	}
}

// Each violation is planted into a service that did what it should, and must be found.
func TestDownstream_FindsPlantedViolations(t *testing.T) {
	t.Parallel()
	for name, spoil := range downstreamPlants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBehind(t)
			spoil(b)
			guarantee, _, _ := strings.Cut(name, " ")
			found := map[string]bool{}
			for _, v := range b.judgeAll().Violations {
				found[v.Guarantee] = true
			}
			require.True(t, found[guarantee], found)
		})
	}
}

var downstreamPlants = map[string]func(b *behind){
	"G5 an event was never applied": func(b *behind) { b.forget(0) },
	"G5 the last event was never applied": func(b *behind) {
		a := b.forget(1)
		b.change(func(x *Belief) { x.State, x.Version, x.Times, x.Event = "unknown", 1, 1, b.service.Applied[0].Event })
		b.service.Versions[a.Payment] = 1
	},
	"G5 an event is a dead letter": func(b *behind) {
		e := b.evidence.Events[0]
		b.evidence.DeadLetters = append(b.evidence.DeadLetters, b.record(b.topics.DeadLetter, e.Key, e.Value,
			"dl_reason", string(payment.DeadHandlerFailed), "dl_topic", e.Topic, "dl_partition", "3", "dl_offset", "0", "dl_consumer", "downstream"))
	},
	"G6 an event that is not in the topic": func(b *behind) {
		id := uuid.New()
		b.service.Applied = append(b.service.Applied, Application{Event: id, Payment: uuid.New(), Version: 1})
		b.service.Markers[id] = true
	},
	"G7 an event was applied twice":        func(b *behind) { b.service.Applied = append(b.service.Applied, b.service.Applied[0]) },
	"G7 an effect was done twice":          func(b *behind) { b.change(func(x *Belief) { x.Times++ }) },
	"G7 an effect without its application": func(b *behind) { b.change(func(x *Belief) { x.State = "declined" }) },
	"G7 the last event did not win": func(b *behind) {
		b.change(func(x *Belief) { x.State, x.Version, x.Event = "unknown", 1, b.service.Applied[0].Event })
	},
	"G7 applied without a marker":  func(b *behind) { delete(b.service.Markers, b.service.Applied[1].Event) },
	"G7 a marker without a effect": func(b *behind) { delete(b.service.Markers, b.forget(2).Event); b.service.Markers[uuid.New()] = true },
	"G7 a version was not noticed": func(b *behind) { b.service.Versions[b.service.Applied[1].Payment] = 1 },
	"G10 applied in the wrong order": func(b *behind) {
		b.service.Applied[0], b.service.Applied[1] = b.service.Applied[1], b.service.Applied[0]
	},
}

// forget takes the n-th application away, and returns it.
func (b *behind) forget(n int) Application {
	a := b.service.Applied[n]
	b.service.Applied = append(b.service.Applied[:n:n], b.service.Applied[n+1:]...)
	return a
}

// change changes what is believed of the first payment.
func (b *behind) change(f func(*Belief)) {
	id := b.service.Applied[0].Payment
	believed := b.service.Believed[id]
	f(&believed)
	b.service.Believed[id] = believed
}

// What a service at work has not applied yet is not missed, and nobody is told that it
// was applied.
func TestDownstream_AtWork(t *testing.T) {
	t.Parallel()
	b := newBehind(t)
	id := b.forget(2).Payment
	delete(b.service.Markers, payment.EventID(id, 1, payment.EventDeclined))
	delete(b.service.Believed, id)
	delete(b.service.Versions, id)
	require.NotEmpty(t, b.judgeAll().Violations)
	b.service.Behind = true
	v := b.judgeAll()
	require.Empty(t, v.Violations)
	require.Equal(t, "it was still at work", whyUnseen(t, v, "G5", "whether downstream has applied every event"))
	require.Contains(t, whyUnseen(t, b.judge(), "G7", "services downstream"), "were read")
	require.Nil(t, b.judge().Counts.Downstream)
}

// The dead letters of an inbox are those of its service, and no commands that are lost.
func TestDownstream_DeadLettersOfOthers(t *testing.T) {
	t.Parallel()
	b := newBehind(t)
	downstreamPlants["G5 an event is a dead letter"](b)
	require.Empty(t, b.judge().Violations)
	b.service.Consumer = "another"
	require.Empty(t, b.judgeAll().Violations)
}

// Every statement fits the tables.
func TestReadDownstream_ReadsItsTables(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, downstream.Migrate)
	id, event := uuid.New(), uuid.New()
	for _, sql := range []string{
		"INSERT INTO downstream.payments VALUES ($1, 'succeeded', 2, $2, 1)", "INSERT INTO downstream.applied (event, payment, version) VALUES ($2, $1, 2)",
		"INSERT INTO settleonce_inbox.versions VALUES ('downstream', $1, 2, now()), ('other', $2, 3, now())",
		"INSERT INTO settleonce_inbox.processed VALUES ('downstream', $2, now()), ('other', $1, now())",
	} {
		_, err := pool.Exec(t.Context(), sql, id, event)
		require.NoError(t, err)
	}
	d, err := ReadDownstream(t.Context(), pool, downstream.Name)
	require.NoError(t, err)
	require.Equal(t, &Downstream{
		Consumer: "downstream", Applied: []Application{{Event: event, Payment: id, Version: 2}},
		Believed: map[uuid.UUID]Belief{id: {State: "succeeded", Version: 2, Event: event, Times: 1}},
		Markers:  map[uuid.UUID]bool{event: true}, Versions: map[uuid.UUID]int{id: 2},
	}, d)
	_, err = ReadDownstream(t.Context(), pgtest.New(t, nil), downstream.Name)
	require.Error(t, err)
}

package demo

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/devstack"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/payment"
)

// A payment that is issued right after the success of another one bears a time that
// the tolerance covers, by the event's own time, however late the event is seen.
func TestPlayer_IssuesRightAfterTheSuccess(t *testing.T) {
	t.Parallel()
	s := write(size{payments: 500}, 20*time.Second, 3, begin, one)
	p := newPlayer(s, nil, "t", nil)
	p.begun = time.Now()
	occurred := begin.Add(time.Hour)
	n := 0
	for _, tr := range s.triggers {
		if tr.then.story != "issued right after the success" {
			continue
		}
		n++
		p.heard(tr.payment, payment.EventSucceeded, occurred)
		late := tr.then.command.IssuedAt.Sub(occurred)
		require.Positive(t, late)
		require.Less(t, late, payment.SuccessTolerance)
		require.Equal(t, endsPaid, tr.then.ends)
	}
	require.GreaterOrEqual(t, n, furtherAtLeast)
}

// Every producer but the first aborts and then commits, several times; the first one's
// transaction is open all the while; each ends what it begins.
func TestScript_EntanglesTransactions(t *testing.T) {
	t.Parallel()
	s := write(size{payments: 500}, 20*time.Second, 3, begin, one)
	require.Len(t, s.entangled, 1)
	steps := s.entangled[0].steps
	require.Equal(t, 0, steps[0].producer)
	require.Equal(t, step{producer: 0, ends: true, commit: true}, steps[len(steps)-1])
	aborted, committed := 0, 0
	for n := range 1 + entangledProducers {
		var ends []bool
		within := false
		for _, st := range steps {
			if st.producer != n {
				continue
			}
			within = within || len(st.write) > 0
			if st.ends && within {
				ends, within = append(ends, st.commit), false
			}
		}
		require.False(t, within)
		if n == 0 {
			require.Equal(t, []bool{true}, ends)
			continue
		}
		require.Equal(t, slices.Repeat([]bool{false, true}, entangledRounds), ends)
	}
	for _, p := range s.payments {
		switch {
		case p.story != "aborted and committed in turn":
		case p.ends.Never:
			aborted++
		default:
			committed++
		}
	}
	require.Equal(t, entangledProducers*entangledRounds*entangledRecords, aborted)
	require.Equal(t, aborted+2*entangledRecords, committed)
}

// What is written is in the topic, and for a reader of committed records all of it and
// nothing else once the last step is done; before, nothing of those partitions.
func TestPlayer_WritesEntangledTransactions(t *testing.T) {
	t.Parallel()
	broker, err := devstack.StartKafka(devstack.KafkaConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, broker.Close()) })
	client, err := kafka.NewClient(kafka.Config{Brokers: broker.Brokers(), ClientID: "test", Logger: zerolog.Nop()})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	_, err = client.EnsureTopics(t.Context(), []kafka.TopicSpec{{Name: "t", Partitions: 3, Replication: 1}})
	require.NoError(t, err)
	s := write(size{payments: 100}, time.Second, 3, begin, one)
	p := newPlayer(s, nil, "t", broker.Brokers())
	p.begun = time.Now().Add(-time.Hour)
	require.NoError(t, p.entangle(t.Context()))
	require.NoError(t, p.interrupted(t.Context())) // and all of it once more
	sent, due, _ := p.progress()
	require.Zero(t, due-len(s.deliveries))
	var want []string
	for _, x := range s.payments {
		if x.story == "aborted and committed in turn" && !x.ends.Never {
			want = append(want, x.command.IdempotencyKey.String(), x.command.IdempotencyKey.String())
		}
	}
	require.Equal(t, len(want)/2+entangledProducers*entangledRounds*entangledRecords, sent)
	var found []string
	require.NoError(t, client.ReadAll(t.Context(), "t", func(r kafka.Record) error {
		found = append(found, string(r.Key))
		return nil
	}))
	require.ElementsMatch(t, want, found)
}

// interrupted writes the first steps of everything and gives up, as a producer does
// that loses its broker, and then all of them.
func (p *player) interrupted(ctx context.Context) error {
	e := p.script.entangled[0]
	half := e
	half.steps = e.steps[:4]
	_, err := p.write(ctx, 0, &half)
	_, again := p.write(ctx, 0, &e)
	return errors.Join(err, again)
}

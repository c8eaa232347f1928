package e2e_test

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/deadletter"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

func (s *stack) desk() *deadletter.Desk {
	return deadletter.New(deadletter.Config{Kafka: s.kafka, Store: s.check, Topic: s.topics.DeadLetter, Commands: []string{s.topics.Commands}})
}

func (s *stack) letters(f deadletter.Filter) (found []*deadletter.Letter) {
	s.t.Helper()
	require.NoError(s.t, s.desk().Each(s.ctx, &f, func(l *deadletter.Letter) error {
		found = append(found, l)
		return nil
	}))
	return found
}

// waitLetters waits until there are n letters, and returns them by reason.
func (s *stack) waitLetters(n int) map[string]*deadletter.Letter {
	s.t.Helper()
	s.eventually("letters", func() bool {
		found := 0
		err := s.desk().Each(s.ctx, &deadletter.Filter{}, func(*deadletter.Letter) error {
			found++
			return nil
		})
		return err == nil && found == n
	})
	byReason := map[string]*deadletter.Letter{}
	for _, l := range s.letters(deadletter.Filter{}) {
		byReason[l.Reason] = l
	}
	return byReason
}

// raw publishes bytes to the command topic.
func (s *stack) raw(key, value string, headers ...kafka.Header) {
	s.t.Helper()
	require.NoError(s.t, s.publish.Publish(s.ctx, kafka.Message{Topic: s.topics.Commands, Key: []byte(key), Value: []byte(value), Headers: headers}))
}

// Dead letters are listed, shown, sent again once, and noted as done with; the
// bytes and headers are the record's own.
func TestDeadLetters_RedriveOnce(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.raw("k", "not JSON", kafka.Header{Key: "trace", Value: []byte{0xff, 1}})
	stale := command(issued(-15 * 24 * time.Hour))
	s.send(stale)
	dead := s.waitLetters(2)
	unreadable := dead["unreadable"]
	require.Equal(t, "not JSON", string(unreadable.Value()))
	require.Equal(t, map[string]string{"trace": "\xff\x01"}, unreadable.Headers())
	require.Len(t, s.letters(deadletter.Filter{Reason: "stale"}), 1)
	require.Empty(t, s.letters(deadletter.Filter{Topic: "elsewhere"}))
	require.Empty(t, s.letters(deadletter.Filter{Since: time.Now().Add(time.Hour)}))

	// Sent again, each dies again: as another letter, with the same bytes.
	done, err := s.desk().Redrive(s.ctx, &deadletter.Filter{}, ada, 100)
	require.NoError(t, err)
	require.Equal(t, deadletter.Redriven{Sent: 2}, done)
	again := s.waitLetters(1) // a stale one is known by now, and answered: it does not die twice (G2)
	require.Equal(t, "not JSON", string(again["unreadable"].Value()))
	require.Equal(t, map[string]string{"trace": "\xff\x01", deadletter.Header: unreadable.ID.String()}, again["unreadable"].Headers())
	s.waitReplies(stale.IdempotencyKey, payment.ReplyRejected, 2)
	require.Zero(t, s.settled(stale))

	done, err = s.desk().Redrive(s.ctx, &deadletter.Filter{Any: true, IDs: []deadletter.ID{unreadable.ID}}, ada, 0)
	require.NoError(t, err)
	require.Equal(t, deadletter.Redriven{Before: 1}, done)
	require.NoError(t, s.desk().Discard(s.ctx, again["unreadable"].ID, ada))
	err = s.desk().Discard(s.ctx, again["unreadable"].ID, ada)
	require.ErrorIs(t, err, store.ErrDealtWith)
	require.ErrorContains(t, err, "discarded by ada")
	require.Empty(t, s.letters(deadletter.Filter{}))
	require.Len(t, s.letters(deadletter.Filter{State: store.LetterRedriven}), 2)
	require.Equal(t, 3, s.count("SELECT count(*) FROM settleonce.audit WHERE action LIKE 'deadletter-%' AND reason = 'INC-42'"))
}

// A command that the database refuses is corrected and sent again; it stays the
// same payment, and what would make it another one is refused.
func TestDeadLetters_EditsStayTheSamePayment(t *testing.T) {
	t.Parallel()
	s := start(t, func(set *settings) { set.callers = onlyShop{} })
	foreign := command(func(c *payment.Command) { c.Caller = "stranger" })
	s.send(foreign)
	s.raw("k", `{"no":"key"}`)
	dead := s.waitLetters(2)
	letter := dead["foreign_caller"]
	text := string(letter.Value())
	for want, body := range map[string]string{
		"no command":      "{",
		"another payment": strings.Replace(text, "stranger", "shop", 1),
		"issuedAt must":   strings.Replace(text, foreign.IssuedAt.Format("2006-01-02"), foreign.IssuedAt.AddDate(0, 0, 1).Format("2006-01-02"), 1),
	} {
		require.ErrorContains(t, s.desk().RedriveEdited(s.ctx, letter.ID, []byte(body), ada), want)
	}
	require.ErrorContains(t, s.desk().RedriveEdited(s.ctx, dead["no_key"].ID, []byte(text), ada), "no readable key")
	require.Len(t, s.letters(deadletter.Filter{}), 2, "nothing was changed")

	corrected := strings.Replace(text, `"tok_visa"`, `"tok_other"`, 1)
	require.NoError(t, s.desk().RedriveEdited(s.ctx, letter.ID, []byte(corrected), ada))
	var original, replacement []byte
	require.NoError(t, s.db.QueryRow(s.ctx, "SELECT original, replacement FROM settleonce.dead_letters WHERE edited").Scan(&original, &replacement))
	require.Equal(t, text, string(original))
	require.Equal(t, corrected, string(replacement))

	for want, id := range map[string]deadletter.ID{"0-999": {Offset: 999}, "77-0": {Partition: 77}} {
		err := s.desk().Discard(s.ctx, id, ada)
		require.ErrorIs(t, err, deadletter.ErrGone)
		require.ErrorContains(t, err, want)
	}
	_, err := deadletter.ParseID("3:1")
	require.ErrorContains(t, err, "PARTITION-OFFSET")
}

// A dead letter that says it was a command and was not is not sent: who may write
// dead letters cannot charge in another caller's name by an operator's hand.
func TestG12_ForgedDeadLetterIsNotRedriven(t *testing.T) {
	t.Parallel()
	s := start(t, only(0, 0, 0))
	forged, genuine := command(), command()
	s.send(genuine)
	letter := func(c payment.Command) kafka.Message {
		return kafka.Message{
			Topic: s.topics.DeadLetter, Key: []byte(c.IdempotencyKey.String()), Value: c.AppendJSON(nil), Headers: []kafka.Header{
				{Key: "dl_reason", Value: []byte("foreign_caller")},
				{Key: "dl_topic", Value: []byte(s.topics.Commands)},
				{Key: "dl_partition", Value: strconv.AppendInt(nil, int64(kafka.Partition([]byte(genuine.IdempotencyKey.String()), 16)), 10)},
				{Key: "dl_offset", Value: []byte("0")},
			},
		}
	}
	require.NoError(t, s.publish.Publish(s.ctx, letter(forged)))
	_, err := s.desk().Redrive(s.ctx, &deadletter.Filter{}, ada, 0)
	require.ErrorContains(t, err, "may not be what its caller wrote")
	require.Zero(t, s.count("SELECT count(*) FROM settleonce.dead_letters"))
	for _, l := range s.letters(deadletter.Filter{}) {
		require.NoError(t, s.desk().Discard(s.ctx, l.ID, ada))
	}
	require.NoError(t, s.publish.Publish(s.ctx, letter(genuine)))
	done, err := s.desk().Redrive(s.ctx, &deadletter.Filter{}, ada, 0)
	require.NoError(t, err)
	require.Equal(t, 1, done.Sent)
}

// The same for facts: who may write dead letters, as every inbox may, tells nobody of a payment that was not, and has
// nobody act on one twice under a new id. What was there is sent again; what is no longer there only if a person
// trusts it.
func TestG12_ForgedFactIsNotRedriven(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := command()
	s.send(c)
	s.waitState(c, payment.Succeeded)
	var event *kafka.Record
	s.eventually("the event", func() bool {
		require.NoError(t, s.kafka.ReadAll(s.ctx, s.topics.Events, func(r kafka.Record) error {
			event = &r
			return nil
		}))
		return event != nil
	})
	letter := func(change func(*kafka.Message), topic string, offset int64) {
		m := kafka.Message{Topic: s.topics.DeadLetter, Key: event.Key, Value: event.Value, Headers: slices.Clone(event.Headers)}
		if change != nil {
			change(&m)
		}
		m.Headers = append(m.Headers,
			kafka.Header{Key: "dl_reason", Value: []byte("handler_failed")}, kafka.Header{Key: "dl_consumer", Value: []byte("packing")},
			kafka.Header{Key: "dl_topic", Value: []byte(topic)},
			kafka.Header{Key: "dl_partition", Value: []byte(strconv.Itoa(event.Partition))},
			kafka.Header{Key: "dl_offset", Value: strconv.AppendInt(nil, offset, 10)})
		require.NoError(t, s.publish.Publish(s.ctx, m))
	}
	letter(func(m *kafka.Message) { m.Value = bytes.Replace(m.Value, []byte(c.OrderID), []byte("order-9"), 1) }, s.topics.Events, event.Offset)
	letter(func(m *kafka.Message) {
		for i := range m.Headers {
			if m.Headers[i].Key == "ce_id" {
				m.Headers[i].Value = []byte(uuid.NewString())
			}
		}
	}, s.topics.Events, event.Offset)
	letter(nil, "nowhere", 0)
	letter(nil, s.topics.Events, event.Offset)
	letter(nil, s.topics.Events, event.Offset+1000)
	done, err := s.desk().Redrive(s.ctx, &deadletter.Filter{}, ada, 0)
	require.ErrorContains(t, err, "is not the record at")
	require.ErrorContains(t, err, "no longer there")
	require.Equal(t, deadletter.Redriven{Sent: 1, Refused: 4}, done, "what is refused holds up nothing")
	trusting := s.desk()
	trusting.TrustRemoved()
	done, err = trusting.Redrive(s.ctx, &deadletter.Filter{Topic: s.topics.Events}, ada, 0)
	require.ErrorContains(t, err, "is not the record at")
	require.Equal(t, deadletter.Redriven{Sent: 1, Refused: 2}, done)
}

// onlyShop lets nobody else in.
type onlyShop struct{}

func (onlyShop) May(_, caller string) bool { return caller == "shop" }

func (onlyShop) Namespace(caller string) (string, bool) { return caller, false }

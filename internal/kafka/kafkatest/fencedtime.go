package kafkatest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/kafka"
)

// checkFencedTime: records carry the time that they were given. A broker that
// refuses a time far ahead, as Apache Kafka does by default, refuses no message for
// good, and takes the same one with another time.
func checkFencedTime(t *testing.T, s *suite) {
	t.Helper()
	topic := s.topic(t, "times", 1)
	p := s.producer(t, "")
	s.insist(t, p, topic, "before")
	m := messages(topic, "timed")[0]
	m.Time = time.Now().Add(3 * time.Hour).UTC().Truncate(time.Millisecond)
	err := s.present(s.context(t), kafka.FencedBatch{Producer: p, Messages: []kafka.Message{m}})[0].Err()
	if err != nil {
		t.Logf("three hours ahead: %s", err)
		require.ErrorIs(t, err, kafka.ErrRenew)
		require.False(t, kafka.Permanent(err))
		require.NoError(t, p.Renew(s.context(t)))
		m.Time = time.Now().Add(-3 * time.Hour).UTC().Truncate(time.Millisecond)
		err = s.present(s.context(t), kafka.FencedBatch{Producer: p, Messages: []kafka.Message{m}})[0].Err()
	}
	require.NoError(t, err)
	var last kafka.Record
	require.NoError(t, s.client.ReadAll(s.context(t), topic, func(r kafka.Record) error {
		last = r
		return nil
	}))
	require.Equal(t, "timed", string(last.Value))
	require.Equal(t, m.Time, last.Time)
}

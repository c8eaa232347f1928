package check

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/pgtest"
	"github.com/settleonce/settleonce/payment"
)

// line is a row of the history.
type line struct {
	state payment.State
	send  int
	cause string
}

// What permits and queries are, as the history tells of them: in the order of its
// versions, and then of its times, whatever the order of its rows: a clock may be set back.
func TestReadDatabase_ReadsTheHistory(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.Schema)
	const sent, timeout = "send permitted", "query without an answer: timeout"
	start := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	tell := func(ends payment.State, lines ...line) uuid.UUID {
		id := uuid.New()
		_, err := pool.Exec(t.Context(), `INSERT INTO settleonce.payments (id, caller, operation, idempotency_key, fingerprint, fingerprint_version,
			namespace, obligation, obligation_hash, order_id, amount, currency, customer_id, payment_method, channel, channel_identity, provider_key,
			state, version, attempt, sends, origin_topic, origin_partition, origin_offset, origin_time, issued_at, latest_issued_at, ended_at)
			VALUES ($1, 'shop', 'charge', $1, '', 1, 'shop', 'o', 1, 'o', 1, 'EUR', 'c', 'm', 'sim', 'sim', $1, $2, 1, 1, 1, 't', 0, 0, $3, $3, $3,
			CASE WHEN $2::smallint >= 4 THEN $3::timestamptz END)`, id, int16(ends), start)
		require.NoError(t, err)
		for i, l := range slices.Backward(lines) { // the latest first: rows have no order
			_, err = pool.Exec(t.Context(), `INSERT INTO settleonce.payment_history (payment, at, state, version, attempt, send, cause, actor)
				VALUES ($1, $2, $3::smallint, $3::smallint, 1, $4, $5, 'test')`, id, start.Add(time.Duration(i)*time.Second), int16(l.state), l.send, l.cause)
			require.NoError(t, err)
		}
		return id
	}
	const pending, unknown, declined, review = payment.Pending, payment.Unknown, payment.Declined, payment.Review
	once := tell(declined, line{pending, 1, ""}, line{declined, 1, "card_declined"})
	parked := tell(declined, line{pending, 0, ""}, line{pending, 1, sent}, line{declined, 1, "card_declined"})
	thrice := tell(declined, line{pending, 1, ""}, line{unknown, 1, "timeout"}, line{unknown, 2, sent}, line{declined, 2, ""}, line{declined, 3, sent})
	back := tell(declined, line{pending, 1, ""}, line{unknown, 1, "timeout"}, line{unknown, 2, sent}, line{declined, 2, ""})
	_, err := pool.Exec(t.Context(), "UPDATE settleonce.payment_history SET at = $2::timestamptz - (at - $2::timestamptz) WHERE payment = $1", back, start)
	require.NoError(t, err)
	tell(payment.Succeeded, line{pending, 1, ""}, line{payment.Succeeded, 1, ""})
	asked := tell(review, line{pending, 1, ""}, line{unknown, 1, timeout}, line{unknown, 1, "query without an answer: unavailable"},
		line{review, 1, "no answer after three queries: " + timeout})
	tell(unknown, line{pending, 1, ""}, line{unknown, 1, timeout})
	tell(review, line{pending, 1, ""}, line{review, 1, "the provider's answer does not match the payment: mismatch"})

	_, err = pool.Exec(t.Context(), `INSERT INTO settleonce.audit (at, actor, action, reason) VALUES ($1, 'test', 'recover', ''),
		($1 - interval '1 day', 'test', 'recover', ''), ($1 + interval '1 day', 'test', 'resolve', '')`, start)
	require.NoError(t, err)

	d, err := ReadDatabase(t.Context(), pool, "settleonce-consumer")
	require.NoError(t, err)
	require.Equal(t, map[uuid.UUID]PermitRow{once: {Before: 1}, parked: {Before: 1}, thrice: {Before: 2, After: 1}, back: {Before: 2}}, d.Permits)
	require.Equal(t, map[uuid.UUID]int{asked: 2}, d.Unanswered)
	require.True(t, start.Equal(d.Recovered), d.Recovered)
}

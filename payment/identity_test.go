package payment_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/settleonce/settleonce/payment"
)

// The vectors are fixed for ever: another derivation would give every known
// payment another identity, and its provider key another charge (G1, P3).
func TestIdentityVectors(t *testing.T) {
	t.Parallel()
	identity := payment.Identity{Caller: "shop", Operation: "charge", Key: uuid.MustParse(sampleKey)}
	recorded := time.UnixMilli(1796032800123)
	for want, id := range map[string]uuid.UUID{
		"ff2255d7-18d1-5b8f-9078-152829f1b82f": identity.PaymentID(),
		"f624c0b2-033b-5523-bf21-828c0d86925e": identity.ProviderKey(1),
		"a57b8438-46e8-5116-9a35-03c0973a7b59": identity.ProviderKey(2),
		"8a8103ad-1c4f-5cf3-ba66-2a1129807bd3": payment.EventID(identity.PaymentID(), 1, payment.EventSucceeded),
		"288df6cf-8d40-55bd-a1b2-30d3e131eec7": payment.ReplyID("payment.commands", 3, 1042, recorded, payment.ReplyOutcome),
		"bcce15dd-da81-5a16-8941-270e4a2d9db9": payment.DeadLetterID("payment.commands", 3, 1042, recorded),
		"13ca6d38-76b0-507c-a0aa-3e39b6bc2f5f": payment.RequeryID(identity.PaymentID(), 1, 2),
	} {
		require.Equal(t, want, id.String())
		require.Equal(t, uuid.Version(5), id.Version())
	}
}

func drawIdentity(t *rapid.T) payment.Identity {
	text := rapid.StringN(0, 200, -1) // longer than one byte of length can say
	return payment.Identity{
		Caller: text.Draw(t, "caller"), Operation: text.Draw(t, "operation"),
		Key: uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "key")),
	}
}

// G12: two identities that differ in anything are two payments.
func TestIdentityHasNoCollisions(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawIdentity(t), drawIdentity(t)
		require.Equal(t, a == b, a.PaymentID() == b.PaymentID())

		// Moving a character over the border between two fields is another identity.
		whole := a.Caller + a.Operation
		cut := rapid.IntRange(0, len(whole)).Draw(t, "cut")
		moved := payment.Identity{Caller: whole[:cut], Operation: whole[cut:], Key: a.Key}
		require.Equal(t, a == moved, a.PaymentID() == moved.PaymentID())
		require.Equal(t, a == moved, a.ProviderKey(1) == moved.ProviderKey(1))
	})
}

func TestDerivedIDsNeverMeet(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		identity := drawIdentity(t)
		id := identity.PaymentID()
		attempt := rapid.IntRange(1, 1000).Draw(t, "attempt")
		seen := map[uuid.UUID]string{}
		for name, derived := range map[string]uuid.UUID{
			"payment":       id,
			"key of this":   identity.ProviderKey(attempt),
			"key of next":   identity.ProviderKey(attempt + 1),
			"event":         payment.EventID(id, attempt, payment.EventUnknown),
			"event of next": payment.EventID(id, attempt+1, payment.EventUnknown),
			"event of type": payment.EventID(id, attempt, payment.EventDeclined),
			"wake-up":       payment.RequeryID(id, attempt, 1),
		} {
			require.NotContains(t, seen, derived, name)
			seen[derived] = name
		}
	})
}

// A topic that was created anew starts its offsets again.
func TestReplyIDTellsDeliveriesApart(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1796032800123)
	base := payment.ReplyID("commands", 1, 23, at, payment.ReplyPending)
	require.Equal(t, base, payment.ReplyID("commands", 1, 23, at.Add(time.Microsecond), payment.ReplyPending),
		"a record's time has milliseconds")
	for name, other := range map[string]uuid.UUID{
		"topic":     payment.ReplyID("commands2", 1, 23, at, payment.ReplyPending),
		"partition": payment.ReplyID("commands", 12, 3, at, payment.ReplyPending),
		"offset":    payment.ReplyID("commands", 1, 24, at, payment.ReplyPending),
		"time":      payment.ReplyID("commands", 1, 23, at.Add(time.Millisecond), payment.ReplyPending),
		"kind":      payment.ReplyID("commands", 1, 23, at, payment.ReplyOutcome),
	} {
		require.NotEqual(t, base, other, name)
	}
}

// B17 and two spellings of one key.
func TestParseKey(t *testing.T) {
	t.Parallel()
	key, ok := payment.ParseKey(sampleKey)
	require.True(t, ok)
	upper, ok := payment.ParseKey(strings.ToUpper(sampleKey))
	require.True(t, ok)
	require.Equal(t, key, upper)

	for _, text := range []string{
		"", " ", "null", uuid.Nil.String(), uuid.Max.String(),
		" " + sampleKey, sampleKey + " ", "{" + sampleKey + "}", "urn:uuid:" + sampleKey,
		strings.ReplaceAll(sampleKey, "-", ""),
		"8e03978e-40d5-13e8-bc93-6894a57f9324", // version 1
		"8e03978e-40d5-53e8-bc93-6894a57f9324", // version 5
		"8e03978e-40d5-73e8-bc93-6894a57f9324", // version 7
		"8e03978e-40d5-43e8-cc93-6894a57f9324", // another variant
		"8e03978e-40d5-43e8-7c93-6894a57f9324",
		"8e03978g-40d5-43e8-bc93-6894a57f9324",
		"8e03978e_40d5_43e8_bc93_6894a57f9324",
		"not-a-uuid-but-thirty-six-characters",
	} {
		_, ok := payment.ParseKey(text)
		require.False(t, ok, "%q", text)
	}
}

package check

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/payment"
)

// A forged command is no delivery of the payment it names, wherever it comes; the
// caller's own command counts as the first (G12).
func TestVerdict_ForgedCommandsAreNobodys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.command()
	dearer := c
	dearer.Amount *= 100
	for _, forged := range []payment.Command{dearer, c, dearer} {
		w.bury(w.deliver(forged), payment.DeadBadSignature)
	}
	w.charged(c)
	w.bury(w.deliver(dearer), payment.DeadBadSignature)
	w.bury(w.deliver(w.command()), payment.DeadBadSignature) // names a payment that nobody asked for
	v := w.requireClean()
	require.Equal(t, 1, v.Counts.Charges)
	require.Equal(t, 5, v.Counts.DeadLetters)
	require.Zero(t, v.Counts.Repeats)
}

// What a forger is told is a violation.
func TestVerdict_ForgerAnswered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.command()
	_, e := w.charged(c)
	r := w.deliver(c)
	w.bury(r, payment.DeadBadSignature)
	w.answer(r, c, payment.ReplyReplayed, withOutcome(e))
	require.NotEmpty(t, w.judge().Violations)
}

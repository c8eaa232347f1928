package check

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/payment"
)

// Payment ids and fingerprints are made by the package that the workers use. Where
// it takes two for one, the checker sees so by the words of the commands.
func TestTwoIntentsThatLookLikeOne(t *testing.T) {
	t.Parallel()
	for name, plant := range map[string]func(first *dossier){
		"G8 another amount":  func(first *dossier) { first.asked.amount++ },
		"G8 another channel": func(first *dossier) { first.asked.channel += "2" },
		"G12 another caller": func(first *dossier) { first.identity.Caller = "another" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c := w.command()
			_, e := w.charged(c)
			w.answer(w.deliver(c), c, payment.ReplyReplayed, withOutcome(e))
			w.requireClean()

			e2 := NewEvidence()
			e2.AddCommand(&w.evidence.Commands[0])
			plant(e2.dossiers[0])
			require.Empty(t, e2.strays)
			e2.AddCommand(&w.evidence.Commands[1])
			require.Len(t, e2.strays, 1)
			require.Contains(t, name, e2.strays[0].guarantee)
			require.Equal(t, c.IdempotencyKey.String(), e2.strays[0].key)
		})
	}
}

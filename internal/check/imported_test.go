package check

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/payment"
)

// importedPayment is a payment of an older system: no command, no event, another provider key.
func (w *tables) importedPayment(c payment.Command, state payment.State) {
	id := c.Identity().PaymentID()
	w.db.Payments = append(w.db.Payments, PaymentRow{
		ID: id, Identity: c.Identity(), ProviderKey: payment.ImportedKey("shop", "charge", c.OrderID), State: state, Attempt: 1, Sends: 1,
		Imported: true,
	})
	if state == payment.Review {
		w.db.Open[id] = OpenRow{NextCheckAt: w.db.At.AddDate(7000, 0, 0)}
	} else {
		w.db.Ends[id] = []payment.State{state}
	}
}

// What an older system did breaks nothing; a retry of it must be answered as a repeat.
func TestTables_ImportedPayments(t *testing.T) {
	t.Parallel()
	for kind, breaks := range map[payment.ReplyKind]bool{payment.ReplyReplayed: false, payment.ReplyConflict: false, payment.ReplyOutcome: true, "": true} {
		w := newTables(t)
		w.paid()
		w.importedPayment(w.command(), payment.Review)
		w.importedPayment(w.command(), payment.Declined)
		c := w.command()
		w.importedPayment(c, payment.Succeeded)
		record := w.deliver(c)
		if kind != "" {
			w.answer(record, c, kind, func(r *payment.Reply) { r.State = payment.Succeeded })
		}
		resolved := w.command()
		w.importedPayment(resolved, payment.Declined)
		w.tell(resolved, payment.EventDeclined, payment.Declined)
		v := w.judgeAll(false)
		if !breaks {
			require.Empty(t, v.Violations, kind)
			continue
		}
		require.Len(t, v.Violations, 1, kind)
		require.Equal(t, c.IdempotencyKey.String(), v.Violations[0].Key)
	}
}

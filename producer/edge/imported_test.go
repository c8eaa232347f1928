package edge

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// G2: the late retry of a payment that was imported without its customer and payment method is told the old
// outcome, as on Kafka, and not that its key stands for another content (G8).
func TestG2_LateRetryOfAnImportedPayment(t *testing.T) {
	t.Parallel()
	retry := payment.Command{
		IdempotencyKey: uuid.New(), Caller: "shop", Operation: payment.OperationCharge, OrderID: "order-1", Amount: 1999, Currency: "EUR",
		CustomerID: "cust-7", PaymentMethod: "tok_visa", Channel: "sim", IssuedAt: time.Now(),
	}
	old := retry
	old.CustomerID, old.PaymentMethod = "", ""
	stored, err := old.ImportedFingerprint()
	require.NoError(t, err)
	p := store.Payment{ID: retry.Identity().PaymentID(), Identity: retry.Identity(), Fingerprint: stored, OrderID: "order-1", State: payment.Succeeded}

	told := func(cmd payment.Command) *httptest.ResponseRecorder {
		own, err := cmd.Fingerprint()
		require.NoError(t, err)
		w := httptest.NewRecorder()
		answer(w, httptest.NewRequest(http.MethodPost, routePayments, http.NoBody), &p, content{&cmd, own}, true)
		return w
	}
	w := told(retry)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.Equal(t, "true", w.Header().Get("Idempotent-Replayed"))
	other := retry
	other.Amount++
	require.Equal(t, http.StatusConflict, told(other).Code)
}

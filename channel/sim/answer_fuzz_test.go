package sim

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel/wire"
	"github.com/settleonce/settleonce/payment"
)

const fuzzedKey = "8e03978e-40d5-53e8-bc93-6894a57f9324"

// FuzzAnswerBody: no answer is an outcome unless it names this payment, and what
// is kept of it is short text (G3, P32).
func FuzzAnswerBody(f *testing.F) {
	settled := `{"id":"ch_1","status":"settled","providerKey":"` + fuzzedKey + `","amount":1999,"currency":"EUR"}`
	declined := `{"id":"ch_1","status":"declined","providerKey":"` + fuzzedKey + `","amount":1999,"currency":"EUR","cause":"insufficient_funds"}`
	for _, body := range []string{
		settled, declined, strings.Replace(settled, "1999", "1998", 1), strings.Replace(settled, "settled", "authorized", 1),
		strings.Replace(declined, fuzzedKey, "8e03978e-40d5-53e8-bc93-6894a57f9325", 1), strings.ReplaceAll(settled, `"`, `'`),
		strings.Replace(settled, "ch_1", "a"+strings.Repeat("é", 150), 1), strings.Replace(declined, "insufficient_funds", strings.Repeat("x", 999), 1),
		`{"code":"not_found","providerKey":"` + fuzzedKey + `"}`, `{"code":"in_progress"}`, `{}`, `null`, `[]`, ``, `{"status":"settl`,
		strings.Replace(settled, "1999", "1e999", 1), settled + settled, `{"Status":"settled"}`, `{"status":"settled","status":"declined"}`,
	} {
		for _, status := range []int{http.StatusOK, http.StatusPaymentRequired, http.StatusNotFound, http.StatusConflict, http.StatusBadGateway} {
			f.Add([]byte(body), status, "1")
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, status int, retry string) {
		want := asked{fuzzedKey, 1999, "EUR"}
		header := http.Header{"Retry-After": []string{retry}}
		for _, op := range []payment.Op{payment.OpSubmit, payment.OpQuery} {
			a := (&Adapter{}).classify(op, wire.Response{Fate: wire.Answered, Status: status, Header: header, Body: body}, want)
			requireEvidence(t, a, body, want)
			require.GreaterOrEqual(t, a.RetryAfter, time.Duration(0))
			for _, text := range []string{a.Reference, a.Cause, a.Detail} {
				require.LessOrEqual(t, len(text), maxDetail)
				require.True(t, utf8.ValidString(text))
			}
		}
	})
}

// requireEvidence reads the body again, by the library alone.
func requireEvidence(t *testing.T, a payment.Answer, body []byte, want asked) {
	t.Helper()
	var read Answer
	err := json.Unmarshal(body, &read)
	var fast Answer
	if fast.readPlain(body) {
		require.NoError(t, err)
		require.Equal(t, read, fast)
	}
	same := read.ProviderKey == want.key && err == nil
	switch a.Class {
	case payment.ClassSucceeded:
		require.True(t, same && read.Amount == want.amount && read.Currency == want.currency && read.Status == StatusSettled)
	case payment.ClassDeclined, payment.ClassRefused:
		require.True(t, same && read.Status != StatusSettled)
	case payment.ClassNotSent:
		require.Fail(t, "an answer proves that the request was sent")
	default:
	}
}

package payment_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/payment"
)

// exchanges is the whole product of inputs, impossible ones included: an adapter
// with a bug must not make money move.
func exchanges() []payment.Exchange {
	statuses := []int{-1, 0, 100, 101, 199, 200, 201, 202, 204, 299, 300, 302, 307, 399, 500, 502, 503, 504, 599, 600, 999}
	for status := 400; status < 500; status++ {
		statuses = append(statuses, status)
	}
	var all []payment.Exchange
	for op := payment.OpSubmit - 1; op <= payment.OpQuery+1; op++ {
		for wire := payment.WireNoAnswer - 1; wire <= payment.WireAnswered+1; wire++ {
			for verdict := payment.VerdictNone - 1; verdict <= payment.VerdictNotFound+1; verdict++ {
				for echo := payment.EchoAbsent - 1; echo <= payment.EchoDiffers+1; echo++ {
					for _, notApplied := range []bool{false, true} {
						for _, status := range statuses {
							all = append(all, payment.Exchange{
								Operation: op, Wire: wire, Status: status, Verdict: verdict, Echo: echo, NotApplied: notApplied,
							})
						}
					}
				}
			}
		}
	}
	return all
}

func between(low, x, high int) bool { return low <= x && x <= high }

// Each rule of DESIGN section 5 as an invariant over everything, written without
// looking at the table.
func TestClassifyInvariants(t *testing.T) {
	t.Parallel()
	seen := map[payment.Class]int{}
	for _, e := range exchanges() {
		class := payment.Classify(e)
		seen[class]++
		if broken := brokenRule(e, class); broken != "" {
			require.Fail(t, broken, "%+v is %s", e, class)
		}
	}
	require.Len(t, seen, 9, "every class can be reached")
}

// brokenRule names the first rule that the class of an exchange breaks.
func brokenRule(e payment.Exchange, class payment.Class) string {
	answered := e.Wire == payment.WireAnswered
	success := answered && between(200, e.Status, 299)
	submit, query := e.Operation == payment.OpSubmit, e.Operation == payment.OpQuery
	needs := map[payment.Class]struct {
		holds    bool
		sentence string
	}{
		payment.ClassSucceeded: {
			success && e.Verdict == payment.VerdictSettled && e.Echo == payment.EchoEqual,
			"success needs a 2xx that says settled with an equal echo",
		},
		payment.ClassDeclined:       {answered && e.Verdict == payment.VerdictDeclined, "a decline is explicit"},
		payment.ClassRefused:        {answered && e.Verdict == payment.VerdictRefused, "a refusal is explicit"},
		payment.ClassNotFound:       {query && answered && e.Verdict == payment.VerdictNotFound, "only a query finds nothing"},
		payment.ClassThrottled:      {answered && e.Status == 429 && (query || e.NotApplied), "throttled is a 429 that cannot have been applied"},
		payment.ClassAccountRefused: {answered && (e.Status == 401 || e.Status == 403), "the account is refused by 401 and 403"},
		payment.ClassMismatched:     {success, "evidence stands in a 2xx"},
	}
	if need, ok := needs[class]; ok && !need.holds {
		return need.sentence
	}
	switch {
	case e.Wire == payment.WireNoAnswer && class != payment.ClassUnknown:
		return "no answer is never anything but unknown"
	case (e.Wire == payment.WireNotSent) != (class == payment.ClassNotSent):
		return "not sent is what was not sent, and nothing else"
	case answered && (e.Status >= 500 || e.Status < 200 || e.Status == 408 || between(300, e.Status, 399)) && class != payment.ClassUnknown:
		return "5xx, 408, redirects and no status say nothing"
	case (class == payment.ClassDeclined || class == payment.ClassRefused) && query && !success:
		return "a query that fails says nothing about the payment"
	case class.EndsPermit() && slices.Contains([]payment.Verdict{
		payment.VerdictSettled, payment.VerdictAuthorized, payment.VerdictProcessing, payment.VerdictReversed, payment.VerdictDeclined,
	}, e.Verdict) && answered:
		return "what may have been executed, or was declined, is not sent again"
	case e.Verdict == payment.VerdictProcessing && e.Wire != payment.WireNotSent && class != payment.ClassUnknown:
		return "already processing is unknown"
	case submit && answered && e.Verdict == payment.VerdictDeclined && class != payment.ClassDeclined && class != payment.ClassUnknown:
		return "a declined submit is declined, or asked about: never sent again"
	}
	return ""
}

// The rows of DESIGN section 5, one by one.
func TestClassifyExamples(t *testing.T) {
	t.Parallel()
	submit := func(status int, verdict payment.Verdict, echo payment.Echo) payment.Exchange {
		return payment.Exchange{Wire: payment.WireAnswered, Status: status, Verdict: verdict, Echo: echo}
	}
	query := func(status int, verdict payment.Verdict, echo payment.Echo) payment.Exchange {
		e := submit(status, verdict, echo)
		e.Operation = payment.OpQuery
		return e
	}
	throttled := submit(429, payment.VerdictNone, payment.EchoAbsent)
	throttled.NotApplied = true
	for i, c := range []struct {
		exchange payment.Exchange
		want     payment.Class
	}{
		{payment.Exchange{}, payment.ClassUnknown},
		{submit(200, payment.VerdictSettled, payment.EchoEqual), payment.ClassSucceeded},
		{submit(201, payment.VerdictSettled, payment.EchoDiffers), payment.ClassMismatched},
		{submit(200, payment.VerdictSettled, payment.EchoAbsent), payment.ClassUnknown},
		{submit(200, payment.VerdictAuthorized, payment.EchoEqual), payment.ClassMismatched},
		{submit(200, payment.VerdictReversed, payment.EchoEqual), payment.ClassMismatched},
		{submit(200, payment.VerdictDeclined, payment.EchoAbsent), payment.ClassDeclined},
		{submit(402, payment.VerdictDeclined, payment.EchoEqual), payment.ClassDeclined},
		{submit(403, payment.VerdictDeclined, payment.EchoAbsent), payment.ClassDeclined},
		{submit(400, payment.VerdictRefused, payment.EchoAbsent), payment.ClassRefused},
		{submit(422, payment.VerdictRefused, payment.EchoAbsent), payment.ClassRefused},
		{submit(422, payment.VerdictNone, payment.EchoAbsent), payment.ClassUnknown},
		{submit(409, payment.VerdictProcessing, payment.EchoAbsent), payment.ClassUnknown},
		{submit(404, payment.VerdictNone, payment.EchoAbsent), payment.ClassUnknown},
		{submit(404, payment.VerdictNotFound, payment.EchoAbsent), payment.ClassUnknown},
		{submit(202, payment.VerdictProcessing, payment.EchoEqual), payment.ClassUnknown},
		{submit(500, payment.VerdictDeclined, payment.EchoEqual), payment.ClassUnknown},
		{submit(500, payment.VerdictSettled, payment.EchoEqual), payment.ClassUnknown},
		{submit(408, payment.VerdictNone, payment.EchoAbsent), payment.ClassUnknown},
		{submit(302, payment.VerdictNone, payment.EchoAbsent), payment.ClassUnknown},
		{submit(429, payment.VerdictNone, payment.EchoAbsent), payment.ClassUnknown},
		{throttled, payment.ClassThrottled},
		{submit(401, payment.VerdictNone, payment.EchoAbsent), payment.ClassAccountRefused},
		{submit(403, payment.VerdictRefused, payment.EchoAbsent), payment.ClassAccountRefused},
		{query(200, payment.VerdictSettled, payment.EchoEqual), payment.ClassSucceeded},
		{query(200, payment.VerdictSettled, payment.EchoDiffers), payment.ClassMismatched},
		{query(200, payment.VerdictDeclined, payment.EchoEqual), payment.ClassDeclined},
		{query(200, payment.VerdictNotFound, payment.EchoAbsent), payment.ClassNotFound},
		{query(404, payment.VerdictNotFound, payment.EchoAbsent), payment.ClassNotFound},
		{query(404, payment.VerdictNone, payment.EchoAbsent), payment.ClassUnknown},
		{query(500, payment.VerdictNotFound, payment.EchoAbsent), payment.ClassUnknown},
		{query(402, payment.VerdictDeclined, payment.EchoEqual), payment.ClassUnknown},
		{query(429, payment.VerdictNone, payment.EchoAbsent), payment.ClassThrottled},
		{query(403, payment.VerdictNone, payment.EchoAbsent), payment.ClassAccountRefused},
	} {
		require.Equal(t, c.want, payment.Classify(c.exchange), "case %d: %+v", i, c.exchange)
	}
}

func TestClassString(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for class := payment.ClassUnknown; class <= payment.ClassNotFound; class++ {
		require.Regexp(t, "^[a-z_]+$", class.String())
		names[class.String()] = true
	}
	require.Len(t, names, 9)
	require.Equal(t, fmt.Sprintf("class(%d)", 99), payment.Class(99).String())
}

package sim_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/payment"
)

// faultCase is one script, what the first submit is answered, how often the
// money was taken, and what a query says afterwards.
type faultCase struct {
	script  string
	heard   bool // an answer comes, of whatever kind; else the caller gives up
	submit  payment.Class
	settled int
	query   payment.Class
}

const heard, never = true, false

var faultCases = []faultCase{
	{"", heard, payment.ClassSucceeded, 1, payment.ClassSucceeded},

	{"declined", heard, payment.ClassDeclined, 0, payment.ClassDeclined},
	{"refused", heard, payment.ClassRefused, 0, payment.ClassRefused},
	{"authorized", heard, payment.ClassMismatched, 0, payment.ClassMismatched},
	{"wrong_amount", heard, payment.ClassMismatched, 1, payment.ClassMismatched},
	{"wrong_currency", heard, payment.ClassMismatched, 1, payment.ClassMismatched},
	{"late_settlement:1h", heard, payment.ClassUnknown, 0, payment.ClassUnknown},

	{"account_refused", heard, payment.ClassAccountRefused, 0, payment.ClassNotFound},
	{"throttled", heard, payment.ClassThrottled, 0, payment.ClassNotFound},
	{"error_before", heard, payment.ClassUnknown, 0, payment.ClassNotFound},
	{"reset_before", heard, payment.ClassUnknown, 0, payment.ClassNotFound},
	{"in_progress", heard, payment.ClassUnknown, 0, payment.ClassNotFound},
	{"redirect", heard, payment.ClassUnknown, 0, payment.ClassNotFound},
	{"blackhole:1h", never, payment.ClassUnknown, 0, payment.ClassNotFound},

	{"lost_answer", heard, payment.ClassUnknown, 1, payment.ClassSucceeded},
	{"hangup", heard, payment.ClassUnknown, 1, payment.ClassSucceeded},
	{"error_after", heard, payment.ClassUnknown, 1, payment.ClassSucceeded},
	{"slow:1h", never, payment.ClassUnknown, 1, payment.ClassSucceeded},
	{"garbage", heard, payment.ClassUnknown, 1, payment.ClassSucceeded},
	{"truncated", heard, payment.ClassUnknown, 1, payment.ClassSucceeded},
	{"no_echo", heard, payment.ClassUnknown, 1, payment.ClassSucceeded},
	{"wrong_key", heard, payment.ClassMismatched, 1, payment.ClassSucceeded},
	{"declined,wrong_key", heard, payment.ClassUnknown, 0, payment.ClassDeclined},
	{"declined,lost_answer", heard, payment.ClassUnknown, 0, payment.ClassDeclined},
	{"lookup_lag:1h", heard, payment.ClassSucceeded, 1, payment.ClassNotFound},

	{"query_error", heard, payment.ClassSucceeded, 1, payment.ClassUnknown},
	{"query_lost", heard, payment.ClassSucceeded, 1, payment.ClassUnknown},
	{"query_garbage", heard, payment.ClassSucceeded, 1, payment.ClassUnknown},
	{"query_hidden", heard, payment.ClassSucceeded, 1, payment.ClassNotFound},
	{"query_throttled", heard, payment.ClassSucceeded, 1, payment.ClassThrottled},
	{"query_account_refused", heard, payment.ClassSucceeded, 1, payment.ClassAccountRefused},
	{"query_slow:10ms", heard, payment.ClassSucceeded, 1, payment.ClassSucceeded},
}

// TestFaults runs every fault end to end, on a connection that was used before:
// one request arrives per submit (G1, P28), nothing is guessed (G3).
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, tt := range faultCases {
		t.Run("script "+tt.script, func(t *testing.T) {
			t.Parallel()
			b := setup(t, sim.DefaultBehaviour())
			require.Equal(t, payment.ClassSucceeded, b.submit(request(""), timeout).Class, "warm the connection up")
			r := request(tt.script)
			var answer payment.Answer
			if tt.heard {
				answer = b.submit(r, timeout)
			} else {
				answer = b.abandon(r, tt.settled)
			}
			require.Equal(t, tt.submit.String(), answer.Class.String(), answer.Detail)
			require.Len(t, answer.RequestHash, 32)
			c := b.charge(r)
			require.Equal(t, 1, c.Requests, "requests on the wire")
			require.Equal(t, tt.settled, c.Settled, "times the money was taken")
			require.Equal(t, tt.query.String(), b.query(r).Class.String())
			require.Equal(t, 1, b.charge(r).Requests, "a query is not a charge")
			require.Zero(t, b.server.Summary().Redirected)
		})
	}
}

func TestEveryKindOfFaultIsTested(t *testing.T) {
	t.Parallel()
	elsewhere := []sim.Kind{sim.Late, sim.Forgotten}
	for _, kind := range sim.Kinds() {
		tested := false
		for _, tt := range faultCases {
			tested = tested || strings.Contains(tt.script, string(kind))
		}
		for _, tt := range callbackCases {
			tested = tested || strings.Contains(tt.script, string(kind))
		}
		for _, other := range elsewhere {
			tested = tested || kind == other
		}
		require.True(t, tested, "no test for %q", kind)
	}
}

// TestNetHTTPWouldSendTwice shows what P28 is about: on the same server, the same
// fault, net/http's client puts two requests on the wire for one call.
func TestNetHTTPWouldSendTwice(t *testing.T) {
	t.Parallel()
	b := setup(t, sim.DefaultBehaviour())
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	post := func(key uuid.UUID, script string) (reused bool) {
		var conns []bool // that it was tried on: whether each had been used
		trace := &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { conns = append(conns, c.Reused) }}
		body := fmt.Sprintf(`{"amount":1999,"currency":"EUR","metadata":{"sim":%q}}`, script)
		req, err := http.NewRequestWithContext(httptrace.WithClientTrace(context.Background(), trace),
			http.MethodPost, b.url+"/v1/charges", strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set(sim.KeyHeader, key.String())
		resp, err := client.Do(req)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			require.NoError(t, errors.Join(err, resp.Body.Close()))
		}
		return conns[0]
	}
	key := uuid.New()
	for post(uuid.New(), "slow:0s"); !post(key, "hangup"); post(uuid.New(), "slow:0s") {
		key = uuid.New() // a client that was too slow has not kept the connection
	}
	require.Equal(t, 2, b.charge(channel.Request{ProviderKey: key}).Requests)
}

func TestThrottleThatWasApplied(t *testing.T) {
	t.Parallel()
	behaviour := sim.DefaultBehaviour()
	behaviour.ThrottleNotApplied = false
	b := setup(t, behaviour)
	r := request("throttled")
	answer := b.submit(r, timeout)
	require.Equal(t, payment.ClassUnknown.String(), answer.Class.String())
	require.Equal(t, time.Second, answer.RetryAfter)
	require.Equal(t, 1, b.charge(r).Settled)
}

func TestRepeatIsAnsweredFromMemory(t *testing.T) {
	t.Parallel()
	b := setup(t, sim.DefaultBehaviour())
	r := request("lost_answer@1")
	require.Equal(t, payment.ClassUnknown, b.submit(r, timeout).Class)
	second, third := b.submit(r, timeout), b.submit(r, timeout)
	require.Equal(t, payment.ClassSucceeded, second.Class)
	require.Equal(t, second, third)
	require.NotEmpty(t, second.Reference)
	c := b.charge(r)
	require.Equal(t, 1, c.Settled)
	require.Equal(t, 3, c.Requests)
	require.Equal(t, 1, c.Executions)
}

func TestRepeatWithOtherContentIsNotExecuted(t *testing.T) {
	t.Parallel()
	b := setup(t, sim.DefaultBehaviour())
	r := request("")
	require.Equal(t, payment.ClassSucceeded, b.submit(r, timeout).Class)
	r.Amount++
	answer := b.submit(r, timeout)
	require.Equal(t, payment.ClassUnknown.String(), answer.Class.String(), "our own mistake is not the customer's decline")
	require.Equal(t, "key_reused", answer.Cause)
	require.Equal(t, 1, b.charge(r).Settled)
}

func TestRepeatOfAFailure(t *testing.T) {
	t.Parallel()
	for _, pinned := range []bool{true, false} {
		behaviour := sim.DefaultBehaviour()
		behaviour.PinsFailures = pinned
		b := setup(t, behaviour)
		r := request("declined@1")
		require.Equal(t, payment.ClassDeclined, b.submit(r, timeout).Class)
		again := b.submit(r, timeout)
		if pinned {
			require.Equal(t, payment.ClassDeclined.String(), again.Class.String(), "P4")
			require.Zero(t, b.charge(r).Settled)
		} else {
			require.Equal(t, payment.ClassSucceeded.String(), again.Class.String())
			require.Equal(t, 1, b.charge(r).Settled)
			require.Equal(t, 1, b.server.Summary().DeclinedAndCharged)
		}
	}
}

func TestKeysThatAreNotRemembered(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		script string
		change func(b *sim.Behaviour)
	}{
		"not idempotent": {"", func(b *sim.Behaviour) { b.IdempotentSubmit = false }},
		"memory over":    {"", func(b *sim.Behaviour) { b.KeyMemory = time.Nanosecond }},
		"forgotten":      {"forgotten@2", func(*sim.Behaviour) {}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			behaviour := sim.DefaultBehaviour()
			tt.change(&behaviour)
			b := setup(t, behaviour)
			r := request(tt.script)
			require.Equal(t, payment.ClassSucceeded, b.submit(r, timeout).Class)
			require.Equal(t, payment.ClassSucceeded, b.submit(r, timeout).Class)
			require.Equal(t, 2, b.charge(r).Settled)
			require.Equal(t, 1, b.server.Summary().DoubleCharged)
		})
	}
}

// TestLateExecution is P25 at the provider: the first send is held in the
// network, the second is declined, then the first takes the money.
func TestLateExecution(t *testing.T) {
	t.Parallel()
	behaviour := sim.DefaultBehaviour()
	behaviour.PinsFailures, behaviour.LongestExecution = false, time.Hour
	b := setup(t, behaviour)
	r := request("late@1:15s,declined@2")
	require.Equal(t, payment.ClassUnknown, b.abandon(r, 0).Class)
	require.Equal(t, payment.ClassDeclined.String(), b.submit(r, timeout).Class.String())
	require.Eventually(t, func() bool { return b.charge(r).Settled == 1 }, timeout, time.Millisecond)
	require.Equal(t, payment.ClassSucceeded.String(), b.query(r).Class.String())
}

func TestNothingIsExecutedPastTheLongestExecution(t *testing.T) {
	t.Parallel()
	behaviour := sim.DefaultBehaviour()
	behaviour.LongestExecution = 50 * time.Millisecond
	b := setup(t, behaviour)
	r := request("late:51ms")
	require.Equal(t, payment.ClassUnknown, b.submit(r, timeout).Class)
	require.Zero(t, b.charge(r).Executions)
}

func TestLateSettlement(t *testing.T) {
	t.Parallel()
	b := setup(t, sim.DefaultBehaviour())
	r := request("late_settlement:50ms")
	require.Equal(t, payment.ClassUnknown, b.submit(r, timeout).Class)
	require.Eventually(t, func() bool { return b.query(r).Class == payment.ClassSucceeded }, timeout, 5*time.Millisecond)
	require.Equal(t, 1, b.charge(r).Settled)
}

func TestLookupPromises(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(b *sim.Behaviour)
		want   payment.Class
	}{
		"P13: lag":     {func(b *sim.Behaviour) { b.VisibilityLag = time.Hour }, payment.ClassNotFound},
		"beyond reach": {func(b *sim.Behaviour) { b.QueryReach = time.Nanosecond }, payment.ClassNotFound},
		"no lookup":    {func(b *sim.Behaviour) { b.Query, b.NotFoundIsProof = false, false }, payment.ClassUnknown},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			behaviour := sim.DefaultBehaviour()
			tt.change(&behaviour)
			b := setup(t, behaviour)
			r := request("")
			require.Equal(t, payment.ClassSucceeded, b.submit(r, timeout).Class)
			require.Equal(t, tt.want.String(), b.query(r).Class.String())
		})
	}
}

// TestLagShowsAnOlderState is P30: the lookup shows the decline, the money is taken.
func TestLagShowsAnOlderState(t *testing.T) {
	t.Parallel()
	behaviour := sim.DefaultBehaviour()
	behaviour.PinsFailures = false
	b := setup(t, behaviour)
	r := request("declined@1,lookup_lag@2:1h")
	require.Equal(t, payment.ClassDeclined, b.submit(r, timeout).Class)
	require.Equal(t, payment.ClassSucceeded, b.submit(r, timeout).Class)
	require.Equal(t, payment.ClassDeclined.String(), b.query(r).Class.String())
}

func TestOneExecutionOfAKeyAtATime(t *testing.T) {
	t.Parallel()
	behaviour := sim.DefaultBehaviour()
	behaviour.Latency = 500 * time.Millisecond
	b := setup(t, behaviour.WithDefaults())
	var met bool
	for round := 0; round < rounds && !met; round++ {
		r := request("")
		classes := atOnce(8, func() payment.Class { return b.submit(r, timeout).Class })
		require.Contains(t, classes, payment.ClassSucceeded)
		require.Equal(t, 1, b.charge(r).Settled)
		require.Equal(t, len(classes), b.charge(r).Requests)
		met = slices.Contains(classes, payment.ClassUnknown)
	}
	require.True(t, met, "409 in progress")
}

// rounds is how often a test tries to have requests meet: a machine that pauses
// may run them one after the other.
const rounds = 20

func atOnce(n int, submit func() payment.Class) []payment.Class {
	classes := make([]payment.Class, n)
	var wg sync.WaitGroup
	for i := range classes {
		wg.Go(func() { classes[i] = submit() })
	}
	wg.Wait()
	return classes
}

func TestLimits(t *testing.T) {
	t.Parallel()
	tests := map[string]func(b *sim.Behaviour){
		"in flight": func(b *sim.Behaviour) { b.MaxInFlight, b.Latency = 1, 500*time.Millisecond },
		"rate":      func(b *sim.Behaviour) { b.RateLimit = 0.001 },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			behaviour := sim.DefaultBehaviour()
			change(&behaviour)
			b := setup(t, behaviour)
			var classes []payment.Class
			for round := 0; round < rounds && !slices.Contains(classes, payment.ClassThrottled); round++ {
				classes = append(classes, atOnce(4, func() payment.Class { return b.submit(request(""), timeout).Class })...)
			}
			require.Contains(t, classes, payment.ClassSucceeded)
			require.Contains(t, classes, payment.ClassThrottled)
		})
	}
}

// TestCurrencies is P19: minor units go there and back unscaled.
func TestCurrencies(t *testing.T) {
	t.Parallel()
	b := setup(t, sim.DefaultBehaviour())
	for currency, amount := range map[string]int64{"JPY": 500, "KWD": 1234, "EUR": 500, "CLF": 12345, "USD": 1<<53 - 1} {
		r := request("")
		r.Currency, r.Amount = currency, amount
		require.Equal(t, payment.ClassSucceeded.String(), b.submit(r, timeout).Class.String(), currency)
		require.Equal(t, amount, b.charge(r).BookedAmount)
		require.Equal(t, payment.ClassSucceeded, b.query(r).Class)
		r.Amount *= 100
		require.Equal(t, payment.ClassMismatched.String(), b.query(r).Class.String(), "the echo is compared with the intent")
	}
}

func TestNotSent(t *testing.T) {
	t.Parallel()
	b := setup(t, sim.DefaultBehaviour())
	r := request("")
	require.Equal(t, payment.ClassNotSent, b.adapter.Submit(context.Background(), r).Class, "a send without a deadline")
	require.Equal(t, payment.ClassNotSent, b.submit(r, 0).Class, "the deadline is over")
	b.stop()
	var err error
	b.adapter, err = sim.NewAdapter(sim.AdapterConfig{BaseURL: "http://127.0.0.1:1"}) // the server's port may be another's by now
	require.NoError(t, err)
	require.Equal(t, payment.ClassNotSent.String(), b.submit(r, timeout).Class.String(), "nobody listens")
	require.Zero(t, b.charge(r).Requests)
}

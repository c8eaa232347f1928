package sim_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
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

// TestLedgerSurvivesARestart: books, memory of keys and open settlements are
// those of before, also after a write that was cut off in its middle.
func TestLedgerSurvivesARestart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger")
	first := setupLedger(t, sim.DefaultBehaviour(), path)
	paid, declined, dropped := request("lost_answer"), request("declined"), request("error_before")
	late, odd := request("late_settlement:300ms"), request("wrong_amount")
	odd.OrderID = "order \"ö\"\n\x01"
	for _, r := range []channel.Request{paid, declined, dropped, late, odd} {
		first.submit(r, timeout)
	}
	require.Equal(t, payment.ClassSucceeded, first.submit(paid, timeout).Class)
	first.stop()
	before := first.server.Charges()
	tear(t, path)

	second := setupLedger(t, sim.DefaultBehaviour(), path)
	for _, c := range before {
		if c.ProviderKey != late.ProviderKey {
			now := second.charge(channel.Request{ProviderKey: c.ProviderKey})
			require.Equal(t, normal(c), normal(now))
		}
	}
	require.Equal(t, payment.ClassSucceeded, second.submit(paid, timeout).Class)
	require.Equal(t, payment.ClassDeclined, second.submit(declined, timeout).Class)
	require.Equal(t, payment.ClassMismatched, second.query(odd).Class)
	require.Equal(t, 1, second.charge(paid).Settled)
	require.Eventually(t, func() bool { return second.charge(late).Settled == 1 }, timeout, time.Millisecond)
	second.stop()

	third := setupLedger(t, sim.DefaultBehaviour(), path)
	require.Equal(t, 1, third.charge(late).Settled, "what was written after the torn line is read")
}

// normal leaves out what a restart may change: time zones and the count of queries.
func normal(c sim.Charge) sim.Charge {
	c.FirstAt, c.LastAt, c.Queries, c.QueriedAt = time.Time{}, c.LastAt.UTC().Round(0), 0, nil
	if c.SettledAt != nil {
		at := c.SettledAt.UTC().Round(0)
		c.SettledAt = &at
	}
	return c
}

func tear(t *testing.T, path string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = file.WriteString(`{"at":"2026-11-30T10:00:00Z","kind":"exec` + strings.Repeat("x", 10_000))
	require.NoError(t, err)
	require.NoError(t, file.Close())
}

func TestDamagedLedgerIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger")
	require.NoError(t, os.WriteFile(path, []byte("{}\nnot a line\n{}\n"), 0o600))
	_, err := sim.NewServer(path, sim.DefaultBehaviour())
	require.ErrorContains(t, err, "line 2")
}

// serveEnv makes the test binary a server on that ledger, to be killed.
const serveEnv = "SIM_TEST_LEDGER"

func TestServeUntilKilled(t *testing.T) {
	t.Parallel()
	path := os.Getenv(serveEnv)
	if path == "" {
		t.Skip("the child of TestLedgerSurvivesAKill")
	}
	require.NoError(t, sim.Run(context.Background(), sim.Config{
		Addr: "127.0.0.1:0", LedgerPath: path, Behaviour: sim.DefaultBehaviour(),
		Ready: func(_ *sim.Server, addr net.Addr) { fmt.Println("listening", addr) },
	}))
}

// TestLedgerSurvivesAKill kills the server under load: every charge that was
// answered is in the ledger.
func TestLedgerSurvivesAKill(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger")
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestServeUntilKilled$")
	child.Env = append(os.Environ(), serveEnv+"="+path)
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	adapter, err := sim.NewAdapter(sim.AdapterConfig{
		BaseURL: "http://" + addressOf(t, bufio.NewScanner(out)), ConnectTimeout: timeout,
	})
	require.NoError(t, err)
	defer adapter.Close()

	answered := chargeUntilDead(adapter, func(n int) {
		if n == 500 {
			require.NoError(t, child.Process.Kill())
		}
	})
	require.Error(t, child.Wait())
	b := setupLedger(t, sim.DefaultBehaviour(), path)
	require.GreaterOrEqual(t, len(answered), 500)
	for _, r := range answered {
		require.Equal(t, 1, b.charge(r).Settled)
	}
}

func addressOf(t *testing.T, lines *bufio.Scanner) string {
	t.Helper()
	for lines.Scan() {
		if addr, ok := strings.CutPrefix(lines.Text(), "listening "); ok {
			return addr
		}
	}
	require.FailNow(t, "the child did not listen")
	return ""
}

// chargeUntilDead submits from eight goroutines until something fails, and
// returns what was answered.
func chargeUntilDead(adapter *sim.Adapter, after func(n int)) []channel.Request {
	var mu sync.Mutex
	var answered []channel.Request
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				r := request("")
				ctx, cancel := context.WithTimeout(context.Background(), timeout)
				answer := adapter.Submit(ctx, r)
				cancel()
				if answer.Class != payment.ClassSucceeded {
					return
				}
				mu.Lock()
				answered = append(answered, r)
				n := len(answered)
				mu.Unlock()
				after(n)
			}
		})
	}
	wg.Wait()
	return answered
}

// TestCountsUnderConcurrency: one settlement per key, however often it is sent
// at once, and as many as there were sends where the channel is not idempotent.
func TestCountsUnderConcurrency(t *testing.T) {
	t.Parallel()
	for _, idempotent := range []bool{true, false} {
		behaviour := sim.DefaultBehaviour()
		behaviour.IdempotentSubmit = idempotent
		b := setupLedger(t, behaviour, filepath.Join(t.TempDir(), "ledger"))
		requests := make([]channel.Request, 50)
		for i := range requests {
			requests[i] = request("")
		}
		const workers, each = 16, 50
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				for _, i := range rand.Perm(each) {
					b.submit(requests[i], timeout)
				}
			})
		}
		wg.Wait()
		for _, r := range requests {
			c := b.charge(r)
			require.Equal(t, workers, c.Requests)
			if idempotent {
				require.Equal(t, 1, c.Settled)
			} else {
				require.Equal(t, workers, c.Settled)
			}
		}
		sum := b.server.Summary()
		require.Equal(t, len(requests), sum.Keys)
		require.EqualValues(t, workers*each, sum.Requests)
		require.Positive(t, sum.MaxInFlight)
		require.Zero(t, sum.InFlight)
	}
}

func TestInstant(t *testing.T) {
	t.Parallel()
	instant := sim.NewInstant()
	require.NoError(t, instant.Capabilities().Validate())
	r := request("")
	ctx := t.Context()
	require.Equal(t, payment.ClassNotFound, instant.Query(ctx, lookup(r)).Class)
	answer := instant.Submit(ctx, r)
	require.Equal(t, payment.ClassSucceeded, answer.Class)
	require.Equal(t, answer.Reference, instant.Submit(ctx, r).Reference)
	require.Equal(t, payment.ClassSucceeded, instant.Query(ctx, lookup(r)).Class)
	over, cancel := context.WithCancel(ctx)
	cancel()
	other := request("")
	other.ProviderKey = uuid.New()
	require.Equal(t, payment.ClassNotSent, instant.Submit(over, other).Class)
	keys, sends, repeated := instant.Counts()
	require.Equal(t, []int{1, 2, 1, 0}, []int{keys, sends, repeated, instant.Sends(other.ProviderKey)})
}

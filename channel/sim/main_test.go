package sim_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/internal/leaktest"
	"github.com/settleonce/settleonce/payment"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// bench is a running server and an adapter that speaks to it.
type bench struct {
	t       testing.TB
	server  *sim.Server
	adapter *sim.Adapter
	url     string
	stop    func()
}

// timeout is the deadline of sends whose answer comes, and of all that is waited
// for: nothing is timed by it.
const timeout = 2 * time.Minute

func setup(t testing.TB, behaviour sim.Behaviour) *bench {
	t.Helper()
	return setupLedger(t, behaviour, "")
}

func setupLedger(t testing.TB, behaviour sim.Behaviour, ledger string) *bench {
	t.Helper()
	b := &bench{t: t}
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan net.Addr, 1), make(chan error, 1)
	go func() {
		done <- sim.Run(ctx, sim.Config{
			Addr: "127.0.0.1:0", LedgerPath: ledger, Behaviour: behaviour,
			Ready: func(s *sim.Server, addr net.Addr) {
				s.Unhurried()
				b.server = s
				ready <- addr
			},
		})
	}()
	select {
	case addr := <-ready:
		b.url = "http://" + addr.String()
	case err := <-done:
		require.NoError(t, err)
	}
	var err error
	b.adapter, err = sim.NewAdapter(sim.AdapterConfig{
		BaseURL: b.url, ConnectTimeout: timeout, Capabilities: behaviour.Capabilities("sim:test"),
	})
	require.NoError(t, err)
	stopped := false
	b.stop = func() {
		if !stopped {
			stopped = true
			b.adapter.Close()
			cancel()
			require.NoError(t, <-done)
		}
	}
	t.Cleanup(b.stop)
	return b
}

// request is a charge of 19.99 EUR with a script for the server.
func request(script string) channel.Request {
	r := channel.Request{
		ProviderKey: uuid.New(), PaymentID: uuid.New(), Amount: 1999, Currency: "EUR",
		OrderID: "order-1001", CustomerID: "cust-7", PaymentMethod: "tok_visa",
		Metadata: map[string]string{"cart": "c-55"},
	}
	if script != "" {
		r.Metadata["sim"] = script
	}
	return r
}

func lookup(r channel.Request) channel.Lookup {
	return channel.Lookup{ProviderKey: r.ProviderKey, Amount: r.Amount, Currency: r.Currency}
}

func (b *bench) submit(r channel.Request, within time.Duration) payment.Answer {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return b.adapter.Submit(ctx, r)
}

// abandon submits, and gives up when the request has arrived and the money was
// taken so many times: its answer does not come.
func (b *bench) abandon(r channel.Request, settled int) payment.Answer {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	answers := make(chan payment.Answer, 1)
	go func() { answers <- b.adapter.Submit(ctx, r) }()
	require.Eventually(b.t, func() bool {
		c := b.charge(r)
		return c.Requests == 1 && c.Settled == settled
	}, timeout, time.Millisecond)
	cancel()
	return <-answers
}

func (b *bench) query(r channel.Request) payment.Answer {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return b.adapter.Query(ctx, lookup(r))
}

// charge returns what the ledger knows of a request.
func (b *bench) charge(r channel.Request) sim.Charge {
	b.t.Helper()
	for _, c := range b.server.Charges() {
		if c.ProviderKey == r.ProviderKey {
			return c
		}
	}
	return sim.Charge{}
}

// within is a context with a deadline.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	t.Cleanup(cancel)
	return ctx
}

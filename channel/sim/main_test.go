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

// timeout is the deadline of sends whose answer comes; patience that of sends
// whose answer does not.
const (
	timeout  = 10 * time.Second
	patience = 500 * time.Millisecond
)

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
			Ready: func(s *sim.Server, addr net.Addr) { b.server = s; ready <- addr },
		})
	}()
	select {
	case addr := <-ready:
		b.url = "http://" + addr.String()
	case err := <-done:
		require.NoError(t, err)
	}
	var err error
	b.adapter, err = sim.NewAdapter(sim.AdapterConfig{BaseURL: b.url, Capabilities: behaviour.Capabilities("sim:test")})
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

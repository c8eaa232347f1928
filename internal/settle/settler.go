package settle

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/internal/crashpoint"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/internal/telemetry"
	"github.com/settleonce/settleonce/internal/tracing"
	"github.com/settleonce/settleonce/payment"
)

// Config is what a Settler needs.
type Config struct {
	Store *store.Store
	Rules Rules
	// Finalizers is the number of group commits under way at once. Defaults to 3.
	Finalizers int
	// Batch is the largest group commit. Defaults to 256.
	Batch int
	// DrainTimeout bounds how long a stop waits for calls under way; after it
	// they are cut, and their payments are unknown. Defaults to 10 s.
	DrainTimeout time.Duration
	Metrics      *telemetry.Metrics
	// Tracer records calls and transactions. Defaults to nobody.
	Tracer *tracing.Tracer
	Logger zerolog.Logger
}

// WithDefaults returns a copy with unset fields set.
func (c Config) WithDefaults() Config {
	if c.Finalizers == 0 {
		c.Finalizers = 3
	}
	if c.Batch == 0 {
		c.Batch = 256
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = 10 * time.Second
	}
	c.Rules = c.Rules.WithDefaults()
	return c
}

// Settler calls channels and stores what their answers mean. Any number of calls
// is under way at once, up to each channel's limit, none inside a transaction
// (G6); results are stored together, as many as have come in.
type Settler struct {
	cfg   Config
	gates map[string]*Gate
	work  chan item
	calls sync.WaitGroup
	// alive ends when calls under way must be cut; storing a little later, so that
	// what they came to can still be stored.
	alive, storing context.Context //nolint:containedctx // the life of what is under way, which is no caller's
	cut, giveUp    context.CancelFunc
}

// lastFlush is how long results may still be stored after the calls were cut.
const lastFlush = 5 * time.Second

// item is a decision to store, and what to do when it is.
type item struct {
	step store.Step
	done func(store.Applied)
}

// New returns a Settler. It does nothing until Run.
func New(cfg Config) (*Settler, error) {
	cfg = cfg.WithDefaults()
	if cfg.Store == nil {
		return nil, errors.New("settle needs a store")
	}
	if err := cfg.Rules.Validate(); err != nil {
		return nil, err
	}
	s := &Settler{cfg: cfg, gates: map[string]*Gate{}, work: make(chan item, 4*cfg.Batch)}
	s.storing, s.giveUp = context.WithCancel(context.Background())
	s.alive, s.cut = context.WithCancel(s.storing)
	for _, name := range cfg.Rules.Channels.Names() {
		entry, _ := cfg.Rules.Channels.Get(name)
		s.gates[name] = newGate(name, entry.Capabilities)
	}
	return s, nil
}

// Rules returns the rules with their defaults.
func (s *Settler) Rules() *Rules { return &s.cfg.Rules }

// Gate returns the gate of a configured channel.
func (s *Settler) Gate(name string) (*Gate, bool) {
	g, ok := s.gates[name]
	return g, ok
}

// Run stores results and keeps the gates in step until ctx ends; then it waits
// for the calls under way, stores their results, and returns. Whoever calls
// Submit or Store must have stopped before ctx ends.
func (s *Settler) Run(ctx context.Context) error {
	syncing, stopSync := context.WithCancel(s.alive)
	var loops, finalizers sync.WaitGroup
	for _, gate := range s.gates {
		loops.Go(func() { gate.sync(syncing, s.cfg.Store, s.warn("report on a channel"), s.alert(gate.name)) })
	}
	for range s.cfg.Finalizers {
		finalizers.Go(s.finalize)
	}
	<-ctx.Done()
	cut := time.AfterFunc(s.cfg.DrainTimeout, s.cut)
	giveUp := time.AfterFunc(s.cfg.DrainTimeout+lastFlush, s.giveUp)
	s.calls.Wait()
	close(s.work)
	finalizers.Wait()
	cut.Stop()
	giveUp.Stop()
	stopSync()
	loops.Wait()
	s.giveUp()
	return nil
}

// alert is the one line per outage of a channel: its payments are parked, not
// lost, and resume by themselves.
func (s *Settler) alert(name string) func(store.ChannelState) {
	return func(state store.ChannelState) {
		if state.Probing {
			s.cfg.Logger.Error().Str("channel", name).Str("reason", state.Reason).
				Msg("channel closed: its payments are parked without a send and resume by themselves")
			return
		}
		s.cfg.Logger.Info().Str("channel", name).Msg("channel answers again")
	}
}

func (s *Settler) warn(what string) func(error) {
	return func(err error) { s.cfg.Logger.Warn().Err(err).Msg(what) }
}

// Submit makes the one call that the permit allows, and stores what its answer
// means. It returns at once. The permit's slot is released when the result is
// stored, so what is under way stays bounded while the database is down.
func (s *Settler) Submit(p Permit) {
	s.calls.Go(func() {
		gate := s.gates[p.Payment.Channel]
		answer := s.send(gate, p)
		s.store(item{
			step: store.Step{Payment: p.Payment.ID, Decide: s.cfg.Rules.Answered(p, answer), Trace: p.Trace.Context()},
			done: func(a store.Applied) {
				gate.Release(1, 0)
				ended(p.Trace, a)
			},
		})
	})
}

// send is one permit, one request on the wire. Whatever stops it before a byte
// has left is proven not sent by the permit's own worker.
func (s *Settler) send(gate *Gate, p Permit) payment.Answer {
	if !gate.enter(s.alive, p.Start) {
		// A worker that was stopped in between must not send late (G11).
		return payment.Answer{Class: payment.ClassNotSent, Cause: "too late to start"}
	}
	defer gate.leave()
	entry, _ := s.cfg.Rules.Channels.Get(p.Payment.Channel)
	deadline := time.Now().Add(entry.Capabilities.SubmitTimeout)
	if p.Deadline.Before(deadline) {
		deadline = p.Deadline
	}
	ctx, cancel := context.WithDeadline(s.alive, deadline)
	defer cancel()
	s.cfg.Metrics.ChannelCallStarted(p.Payment.Channel, telemetry.CallSubmit)
	crashpoint.Here(crashpoint.SendStart)
	call := s.cfg.Tracer.Call(p.Trace.Context(), telemetry.CallSubmit, p.Payment.Channel)
	started := time.Now()
	answer := entry.Adapter.Submit(ctx, request(p.Payment, call.Context()))
	crashpoint.Here(crashpoint.SendDone)
	answered(call, answer)
	s.cfg.Metrics.ChannelCallDone(p.Payment.Channel, telemetry.CallSubmit, answer.Class, time.Since(started))
	gate.Observe(answer)
	return answer
}

func request(p store.Payment, traceparent string) channel.Request {
	return channel.Request{
		ProviderKey: p.ProviderKey, PaymentID: p.ID, Amount: p.Amount, Currency: p.Currency,
		OrderID: p.OrderID, CustomerID: p.CustomerID, PaymentMethod: p.PaymentMethod, Metadata: p.Metadata,
		Traceparent: traceparent,
	}
}

// Query asks a channel about a payment. The caller has taken it from the budget.
// traceparent is the context it belongs to, empty for none.
func (s *Settler) Query(p store.Payment, traceparent string) payment.Answer {
	entry, ok := s.cfg.Rules.Channels.Get(p.Channel)
	if !ok {
		return payment.Answer{Class: payment.ClassNotSent, Cause: "channel not configured"}
	}
	ctx, cancel := context.WithTimeout(s.alive, entry.Capabilities.QueryTimeout)
	defer cancel()
	s.cfg.Metrics.ChannelCallStarted(p.Channel, telemetry.CallQuery)
	call := s.cfg.Tracer.Call(traceparent, telemetry.CallQuery, p.Channel)
	started := time.Now()
	answer := entry.Adapter.Query(ctx, channel.Lookup{
		ProviderKey: p.ProviderKey, Amount: p.Amount, Currency: p.Currency, Traceparent: call.Context(),
	})
	answered(call, answer)
	s.cfg.Metrics.ChannelCallDone(p.Channel, telemetry.CallQuery, answer.Class, time.Since(started))
	s.gates[p.Channel].Observe(answer)
	return answer
}

// Go runs fn as a call under way: Run waits for it. fn may call Store and Submit.
func (s *Settler) Go(fn func()) { s.calls.Go(fn) }

// Store has the step applied in the next group commit and then calls done, if
// any. It blocks while too many are waiting.
func (s *Settler) Store(step store.Step, done func(store.Applied)) { s.store(item{step, done}) }

// store counts the item as under way until it is done with, so that whatever its
// done starts is waited for as well.
func (s *Settler) store(it item) {
	s.calls.Add(1)
	s.work <- it
}

// finalize stores what has come in, group after group, until the work ends.
func (s *Settler) finalize() {
	for first := range s.work {
		batch := []item{first}
	more:
		for len(batch) < s.cfg.Batch {
			select {
			case it, ok := <-s.work:
				if !ok {
					break more
				}
				batch = append(batch, it)
			default:
				break more
			}
		}
		s.commit(batch)
	}
}

// commit stores one group. While the database does not answer it tries again: a
// definite answer must not be lost for want of patience. It gives up when the
// process must end; the payments are then found by their leases.
func (s *Settler) commit(batch []item) {
	steps := make([]store.Step, len(batch))
	for i := range batch {
		steps[i] = batch[i].step
	}
	crashpoint.Here(crashpoint.SettleStart)
	started := time.Now()
	transaction := s.cfg.Tracer.Batch("finalize payments", len(steps), func(i int) string { return steps[i].Trace })
	var applied []store.Applied
	err := UntilDone(s.storing, func() (err error) {
		applied, err = s.cfg.Store.Apply(s.storing, steps)
		return err
	}, func(err error) {
		s.cfg.Logger.Warn().Err(err).Int("payments", len(steps)).Msg("store answers; trying again")
	})
	if err != nil {
		s.cfg.Logger.Error().Err(err).Int("payments", len(steps)).Msg("answers not stored before the stop; the sweep asks the provider again")
		applied = make([]store.Applied, len(batch))
	}
	crashpoint.Here(crashpoint.SettleDone)
	if err != nil {
		transaction.Fail("database")
	}
	transaction.End()
	s.cfg.Metrics.Batch("finalize", len(batch), time.Since(started))
	for i := range batch {
		s.count(applied[i])
		if batch[i].done != nil {
			batch[i].done(applied[i])
		}
		s.calls.Done()
	}
}

func (s *Settler) count(a store.Applied) {
	if a.Err != nil {
		s.cfg.Logger.Error().Err(a.Err).Stringer("key", a.Before.Payment.Identity.Key).Msg("an answer cannot be stored; the sweep looks at its payment again")
	}
	if a.Change == nil || a.After.State == a.Before.Payment.State {
		return
	}
	s.cfg.Metrics.Transitions(a.After.State, 1)
	if a.After.State == payment.Rejected {
		s.cfg.Metrics.Rejections(a.Change.Code, 1)
	}
}

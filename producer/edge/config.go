package edge

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/internal/telemetry"
	"github.com/settleonce/settleonce/internal/tracing"
	"github.com/settleonce/settleonce/payment"
	"github.com/settleonce/settleonce/producer"
)

// Sender brings a command to Kafka: nil means that all in-sync replicas have it.
// *producer.Producer is one.
type Sender interface {
	Send(ctx context.Context, cmd payment.Command, opts producer.Options) (producer.Place, error)
}

// Reader reads what became of payments. *store.Store is one.
type Reader interface {
	Look(ctx context.Context, ids []uuid.UUID) ([]store.Payment, error)
	PaymentsOfOrder(ctx context.Context, q store.OrderQuery) ([]store.Payment, error)
	Story(ctx context.Context, id uuid.UUID, most int) (store.Status, error)
}

// Config is what an edge needs. Callers, Sender and Reader are required.
type Config struct {
	// Address is where it listens, host:port; port 0 takes a free one. Defaults to
	// ":8080".
	Address string
	// TLS serves HTTPS with its certificates; nil serves HTTP, for behind a proxy
	// that ends TLS.
	TLS *tls.Config

	Callers Callers
	Sender  Sender
	Reader  Reader
	// Topic is the full name of the command topic that may carry a caller's
	// commands, "" for the usual one; false refuses the caller (G12). nil takes the
	// usual one for everybody.
	Topic func(caller string) (string, bool)
	// Callbacks serves POST /v1/callbacks/{channel}, with the channel as the path
	// value "channel". nil: there are none.
	Callbacks http.Handler
	// OpenAPI is served at /openapi.json, as JSON. nil: nothing is.
	OpenAPI []byte

	// Wait is how long a POST waits for the payment's outcome, unless its Prefer
	// header says otherwise. Defaults to 1 s.
	Wait time.Duration
	// MaxWait bounds what a Prefer header may ask for. Defaults to 30 s.
	MaxWait time.Duration
	// PublishTimeout bounds how long Kafka may take to acknowledge. Defaults to 5 s.
	PublishTimeout time.Duration
	// MaxInFlight bounds the requests under way, waiting ones included. Callbacks
	// have a quarter of it beside it, and no part in it: a stranger may send a body as
	// slowly as it likes. The waiting requests of one caller get a quarter; beyond it
	// they are answered at once, with what is known. Defaults to 4096.
	MaxInFlight int
	// DrainDelay is how long requests are still taken after the context of Run has
	// ended, so that load balancers notice. Defaults to none.
	DrainDelay time.Duration

	// KeysSince is when leaving the key out was declared deprecated: the Deprecation
	// header of those who still may. Defaults to 2026-12-01.
	KeysSince time.Time

	// Metrics may be nil.
	Metrics *telemetry.Metrics
	// Tracer records requests and what they send. Defaults to nobody: then a valid
	// traceparent goes on with the command as it came.
	Tracer *tracing.Tracer
	Logger zerolog.Logger
}

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	c.Address = cmp.Or(c.Address, ":8080")
	c.Wait = cmp.Or(c.Wait, time.Second)
	c.MaxWait = cmp.Or(c.MaxWait, 30*time.Second)
	c.PublishTimeout = cmp.Or(c.PublishTimeout, 5*time.Second)
	c.MaxInFlight = cmp.Or(c.MaxInFlight, 4096)
	if c.KeysSince.IsZero() {
		c.KeysSince = time.Date(2026, time.December, 1, 0, 0, 0, 0, time.UTC)
	}
	if c.Topic == nil {
		c.Topic = func(string) (string, bool) { return "", true }
	}
	return c
}

// Validate reports the first setting that cannot work, in a sentence that says
// what to change.
func (c Config) Validate() error {
	switch {
	case c.Callers == nil || c.Sender == nil || c.Reader == nil:
		return errors.New("the edge needs callers, a sender and a reader: give all three")
	case c.Wait < 0 || c.Wait > c.MaxWait:
		return fmt.Errorf("the edge waits %s by default: use 0 to %s, the most that may be asked for", c.Wait, c.MaxWait)
	case c.MaxWait > 5*time.Minute:
		return fmt.Errorf("the edge may be asked to wait %s: use at most 5m", c.MaxWait)
	case c.PublishTimeout <= 0:
		return errors.New("the edge's publish timeout is not positive: use 1s to 10s")
	case c.MaxInFlight < 1:
		return errors.New("the edge takes no request at once: use 1 or more")
	case c.DrainDelay < 0:
		return errors.New("the edge's drain delay is negative: use 0 or more")
	}
	return nil
}

package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/channel/wire"
	"github.com/settleonce/settleonce/payment"
)

// AdapterConfig says which server an adapter speaks to.
type AdapterConfig struct {
	// BaseURL is the server's address, for instance http://127.0.0.1:8090. Required.
	BaseURL string
	// Capabilities is the record the adapter is registered with; what a 429 means
	// is taken from it. Check compares it with the server.
	Capabilities channel.Capabilities
	// MaxIdle bounds the connections kept between calls. Defaults to that of wire.Config.
	MaxIdle int
	// ConnectTimeout bounds the opening of a connection. Defaults to that of wire.Config.
	ConnectTimeout time.Duration
	// Callbacks verifies what the server sends back. Without a secret nothing is
	// accepted.
	Callbacks channel.CallbackSigning
}

// Adapter speaks to a Server as an adapter speaks to its provider.
type Adapter struct {
	capabilities channel.Capabilities
	client       *wire.Client
	callbacks    channel.CallbackSigning
}

var _ channel.Adapter = (*Adapter)(nil)

// NewAdapter makes an adapter; it does not connect.
func NewAdapter(config AdapterConfig) (*Adapter, error) {
	client, err := wire.NewClient(wire.Config{
		BaseURL: config.BaseURL, MaxIdle: config.MaxIdle, ConnectTimeout: config.ConnectTimeout,
		Header: []wire.Field{{Name: "Content-Type", Value: "application/json"}},
	})
	if err != nil {
		return nil, fmt.Errorf("make sandbox adapter: %w", err)
	}
	return &Adapter{capabilities: config.Capabilities, client: client, callbacks: config.Callbacks}, nil
}

// Close closes the idle connections.
func (a *Adapter) Close() { a.client.Close() }

// Submit puts one charge on the wire.
func (a *Adapter) Submit(ctx context.Context, r channel.Request) payment.Answer {
	body := appendBody(make([]byte, 0, 512), &r)
	key := r.ProviderKey.String()
	response := a.client.Do(ctx, wire.Request{
		Method: http.MethodPost, Target: "/v1/charges", Body: body,
		Header: traced([]wire.Field{{Name: KeyHeader, Value: key}}, r.Traceparent),
	})
	answer := a.classify(payment.OpSubmit, response, asked{key, r.Amount, r.Currency})
	answer.RequestHash = requestHash(r.ProviderKey, body)
	return answer
}

// Query looks a charge up.
func (a *Adapter) Query(ctx context.Context, l channel.Lookup) payment.Answer {
	key := l.ProviderKey.String()
	response := a.client.Do(ctx, wire.Request{Method: http.MethodGet, Target: "/v1/charges/" + key, Header: traced(nil, l.Traceparent)})
	return a.classify(payment.OpQuery, response, asked{key, l.Amount, l.Currency})
}

// traced adds the context of a trace, where there is one.
func traced(header []wire.Field, traceparent string) []wire.Field {
	if traceparent == "" {
		return header
	}
	return append(header, wire.Field{Name: "traceparent", Value: traceparent})
}

// Check reports where the adapter's record and what the server says it does
// differ. Names and timeouts are the adapter's own and not compared, nor are
// limits below the server's.
func (a *Adapter) Check(ctx context.Context) error {
	response := a.client.Do(ctx, wire.Request{Method: http.MethodGet, Target: "/admin/behaviour"})
	if response.Fate != wire.Answered {
		return fmt.Errorf("ask the sandbox channel for its behaviour: %w", response.Err)
	}
	if response.Status != http.StatusOK {
		return fmt.Errorf("ask the sandbox channel for its behaviour: status %d", response.Status)
	}
	var behaviour Behaviour
	if err := json.Unmarshal(response.Body, &behaviour); err != nil {
		return fmt.Errorf("read the sandbox channel's behaviour: %w", err)
	}
	theirs, ours := behaviour.Capabilities(a.capabilities.Identity), a.capabilities.WithDefaults()
	theirs.EquivalentIdentities = ours.EquivalentIdentities
	theirs.SubmitTimeout, theirs.QueryTimeout = ours.SubmitTimeout, ours.QueryTimeout
	if behaviour.MaxInFlight == 0 || ours.MaxInFlight < behaviour.MaxInFlight {
		theirs.MaxInFlight = ours.MaxInFlight
	}
	if behaviour.RateLimit == 0 || ours.RateLimit > 0 && ours.RateLimit < behaviour.RateLimit {
		theirs.RateLimit = ours.RateLimit
	}
	if !reflect.DeepEqual(theirs, ours) {
		return fmt.Errorf("the record differs from the sandbox channel's behaviour: %+v instead of %+v", ours, theirs)
	}
	return nil
}

// asked is what an answer must repeat to be evidence for this payment.
type asked struct {
	key      string
	amount   int64
	currency string
}

// classify reads an answer and hands it to the one table.
func (a *Adapter) classify(op payment.Op, r wire.Response, want asked) payment.Answer {
	exchange := payment.Exchange{Operation: op, Wire: wires[r.Fate], Status: r.Status}
	if r.Fate != wire.Answered {
		return payment.Answer{Class: payment.Classify(exchange), Cause: causeOf(r.Err), Detail: clip(r.Err.Error())}
	}
	var body Answer
	readable := body.readPlain(r.Body)
	if !readable {
		body = Answer{}
		readable = json.Unmarshal(r.Body, &body) == nil
	}
	if readable {
		exchange.Echo, exchange.Verdict = want.compare(&body), want.verdict(&body)
	}
	exchange.NotApplied = r.Status == http.StatusTooManyRequests && a.capabilities.ThrottleNotApplied
	answer := payment.Answer{Class: payment.Classify(exchange), Cause: clip(body.Cause), RetryAfter: retryAfter(r.Header)}
	switch {
	case !readable:
		answer.Cause, answer.Detail = "unreadable_answer", fmt.Sprintf("status %d, %d bytes", r.Status, len(r.Body))
	case body.Status == "":
		answer.Cause = clip(body.Code)
	case body.ProviderKey == want.key:
		answer.Reference = clip(body.ID)
	}
	if answer.Class == payment.ClassMismatched {
		answer.Cause = "mismatch"
		answer.Detail = clip(fmt.Sprintf("%s %d %s for %s", body.Status, body.Amount, body.Currency, body.ProviderKey))
	}
	return answer
}

// compare says how the echo compares: all of it must be there and be ours (P19, P32).
func (w asked) compare(body *Answer) payment.Echo {
	key, amount, currency := body.ProviderKey != "", body.Amount != 0, body.Currency != ""
	differs := key && body.ProviderKey != w.key || amount && body.Amount != w.amount || currency && body.Currency != w.currency
	switch {
	case differs:
		return payment.EchoDiffers
	case key && amount && currency:
		return payment.EchoEqual
	default:
		return payment.EchoAbsent
	}
}

// verdict reads the body in our words. What ends a payment against the customer's
// wish (declined, refused, not found) must name our key: an answer that belongs
// to somebody else's request must not decline ours (G3).
func (w asked) verdict(body *Answer) payment.Verdict {
	ours := body.ProviderKey == w.key
	switch {
	case body.Status == StatusSettled:
		return payment.VerdictSettled
	case body.Status == StatusProcessing:
		return payment.VerdictProcessing
	case body.Status == StatusAuthorized:
		return payment.VerdictAuthorized
	case !ours:
		return payment.VerdictNone
	case body.Status == StatusDeclined:
		return payment.VerdictDeclined
	case body.Status == StatusRefused, body.Code == "invalid_request":
		return payment.VerdictRefused
	case body.Code == "not_found":
		return payment.VerdictNotFound
	default:
		return payment.VerdictNone
	}
}

var wires = map[wire.Fate]payment.Wire{
	wire.NotSent: payment.WireNotSent, wire.NoAnswer: payment.WireNoAnswer, wire.Answered: payment.WireAnswered,
}

func causeOf(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "timeout"
	}
	if errors.Is(err, context.Canceled) {
		return "cancelled"
	}
	return "connection"
}

const maxDetail = 200

// clip bounds what a provider may make us keep; half a character at the end, which
// no database takes for text, goes too.
func clip(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxDetail)], "")
}

func retryAfter(header http.Header) time.Duration {
	value := header.Get("Retry-After")
	if value == "" {
		return 0
	}
	if d, err := time.ParseDuration(value + "s"); err == nil && d > 0 {
		return d
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(header.Get("Date")) // the clock that at was taken from
	if err != nil {
		now = time.Now()
	}
	return max(0, at.Sub(now))
}

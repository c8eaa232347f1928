package sim

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/channel"
)

// CallbackHeader carries the signature of a callback (channel.CallbackSigning).
const CallbackHeader = "Sim-Signature"

// CallbackTypes are what callbacks are about; the adapter maps them to
// channel.CallbackKind.
const (
	CallbackSettled    = "charge.settled"
	CallbackDeclined   = "charge.declined"
	CallbackProcessing = "charge.processing"
	CallbackRefunded   = "charge.refunded"
	CallbackDisputed   = "charge.disputed"
)

// Callback is the body of a callback.
type Callback struct {
	// ID is the same in every delivery of the same news.
	ID string `json:"id"`
	// Type is one of the CallbackTypes.
	Type string `json:"type"`
	// CreatedAt is when it happened.
	CreatedAt time.Time `json:"createdAt"`
	// Charge is what it is about.
	Charge CallbackCharge `json:"charge"`
}

// CallbackCharge is a charge as a callback shows it.
type CallbackCharge struct {
	Answer

	// PaymentID repeats what the charge carried.
	PaymentID string `json:"paymentId,omitempty"`
}

var callbackKinds = map[string]channel.CallbackKind{
	CallbackSettled: channel.CallbackSucceeded, CallbackDeclined: channel.CallbackDeclined,
	CallbackRefunded: channel.CallbackRefunded, CallbackDisputed: channel.CallbackDisputed,
}

var _ channel.CallbackVerifier = (*Adapter)(nil)

// VerifyCallback implements channel.CallbackVerifier.
func (a *Adapter) VerifyCallback(header http.Header, body []byte, now time.Time) (channel.Callback, error) {
	if err := a.callbacks.Verify(header.Get(CallbackHeader), body, now); err != nil {
		return channel.Callback{}, err
	}
	return readCallback(body)
}

// readCallback reads a body whose signature is right. Ids that are there and are
// none of ours make it unreadable: they would find nothing, for ever.
func readCallback(body []byte) (channel.Callback, error) {
	var in Callback
	if json.Unmarshal(body, &in) != nil {
		return channel.Callback{}, channel.ErrCallbackUnreadable
	}
	kind, known := callbackKinds[in.Type]
	if !known {
		kind = channel.CallbackOther
	}
	out := channel.Callback{
		ID: in.ID, Reference: in.Charge.ID, Kind: kind, Amount: in.Charge.Amount, Currency: in.Charge.Currency,
		Cause: in.Charge.Cause, OccurredAt: in.CreatedAt,
	}
	for text, id := range map[string]*uuid.UUID{in.Charge.ProviderKey: &out.ProviderKey, in.Charge.PaymentID: &out.PaymentID} {
		if text == "" {
			continue
		}
		var err error
		if *id, err = uuid.Parse(text); err != nil {
			return channel.Callback{}, channel.ErrCallbackUnreadable
		}
	}
	if err := out.Check(); err != nil {
		return channel.Callback{}, err
	}
	return out, nil
}

// VerifyCallback says that an instant provider sends none.
func (p *Instant) VerifyCallback(http.Header, []byte, time.Time) (channel.Callback, error) {
	return channel.Callback{}, channel.ErrNoCallbackSecret
}

// callbackOf is the news about a status; false for what is no news.
func callbackOf(key uuid.UUID, status Status, b booking, paymentID string, at time.Time) (Callback, bool) {
	kind := map[Status]string{
		StatusSettled: CallbackSettled, StatusDeclined: CallbackDeclined, StatusRefused: CallbackDeclined,
		StatusProcessing: CallbackProcessing, StatusAuthorized: "charge.authorized",
	}[status]
	if kind == "" {
		return Callback{}, false
	}
	c := Callback{
		ID: "evt_" + b.reference + "_" + string(status), Type: kind, CreatedAt: at.UTC(),
		Charge: CallbackCharge{PaymentID: paymentID, Answer: Answer{
			ID: b.reference, Status: status, ProviderKey: key.String(), Amount: b.amount, Currency: b.currency,
		}},
	}
	if status.failed() {
		c.Charge.Cause = "card_" + string(status)
	}
	return c, true
}

// opposite is a callback that says the contrary, under an id of its own.
func (c Callback) opposite() Callback {
	c.ID += "_opposite"
	if c.Type == CallbackSettled {
		c.Type, c.Charge.Status, c.Charge.Cause = CallbackDeclined, StatusDeclined, "card_declined"
		return c
	}
	c.Type, c.Charge.Status, c.Charge.Cause = CallbackSettled, StatusSettled, ""
	return c
}

// earlier is the news that came before: the charge was in processing.
func (c Callback) earlier() Callback {
	c.ID += "_earlier"
	c.Type, c.Charge.Status, c.Charge.Cause = CallbackProcessing, StatusProcessing, ""
	c.CreatedAt = c.CreatedAt.Add(-time.Second)
	return c
}

// refund is the news that an amount of it was given back.
func (c Callback) refund(amount int64) Callback {
	c.ID += "_refund_" + strconv.FormatInt(amount, 10)
	c.Type, c.Charge.Amount, c.Charge.Cause = CallbackRefunded, amount, ""
	return c
}

// echo says which of our names a provider repeats in callbacks.
type echo string

const (
	echoAll       echo = ""
	echoKey       echo = "key"
	echoReference echo = "reference"
)

// named leaves out what the provider does not repeat.
func (c Callback) named(e echo) Callback {
	switch e {
	case echoAll:
	case echoKey:
		c.Charge.PaymentID = ""
	case echoReference:
		c.Charge.PaymentID, c.Charge.ProviderKey = "", ""
	}
	return c
}

// tell sends the news of an execution. It waits for the delivery only where the
// callback is to come before its own answer.
func (s *Server) tell(p plan, key uuid.UUID, content *Content, v verdict) {
	if v.repeated || v.reused || s.news.target.Load() == nil {
		return
	}
	c, news := callbackOf(key, v.status, v.booking, content.PaymentID, time.Now())
	if !news {
		return
	}
	done := s.deliver(postings(p, c))
	if p.has(CallbackEarly) {
		timer := time.NewTimer(s.early)
		defer timer.Stop()
		select {
		case <-done:
		case <-timer.C:
		case <-s.stop:
		}
	}
}

// earlyPatience bounds how long an answer waits for its own callback.
const earlyPatience = 2 * time.Second

// tellSettled sends the news that a charge in processing was settled.
func (s *Server) tellSettled(p plan, key uuid.UUID) {
	if s.news.target.Load() == nil {
		return
	}
	e, found := s.books.get(key)
	if !found {
		return
	}
	b := booking{e.Reference, e.BookedAmount, e.BookedCurrency}
	if c, news := callbackOf(key, e.Status, b, e.PaymentID, time.Now()); news {
		s.deliver(postings(p, c))
	}
}

// Faults of callbacks. They are scripted like those of submits.
const (
	// CallbackMissing: none is sent.
	CallbackMissing Kind = "callback_missing"
	// CallbackDuplicate: sent five times.
	CallbackDuplicate Kind = "callback_duplicate"
	// CallbackLate: sent after the duration.
	CallbackLate Kind = "callback_late"
	// CallbackEarly: delivered before the charge's own answer.
	CallbackEarly Kind = "callback_early"
	// CallbackReordered: an older one, that the charge is in processing, follows.
	CallbackReordered Kind = "callback_reordered"
	// CallbackForged: one that says the opposite, signed with another secret,
	// comes first.
	CallbackForged Kind = "callback_forged"
	// CallbackStale: one with a right signature that is an hour old comes first.
	CallbackStale Kind = "callback_stale"
	// CallbackOpposite: one that says the opposite, rightly signed, comes first.
	CallbackOpposite Kind = "callback_opposite"
	// CallbackWrongAmount: it names one minor unit less than was charged.
	CallbackWrongAmount Kind = "callback_wrong_amount"
	// CallbackGarbage: something that is no callback, rightly signed, comes first.
	CallbackGarbage Kind = "callback_garbage"
	// CallbackRefund: one that all of it was refunded comes first.
	CallbackRefund Kind = "callback_refund"
	// CallbackPartRefund: one that half of it was refunded follows.
	CallbackPartRefund Kind = "callback_part_refund"
)

// posting is one callback on its way.
type posting struct {
	body   Callback
	after  time.Duration // before it is sent
	age    time.Duration // of the signature
	forged bool
	raw    []byte // instead of the body
	once   bool   // not sent again when it is refused
}

const (
	duplicates = 5
	staleAge   = time.Hour
)

// postings are what is sent for one piece of news, in order.
func postings(p plan, c Callback) []posting {
	if p.has(CallbackMissing) {
		return nil
	}
	var before, after []posting
	news := posting{body: c}
	for _, fault := range p {
		switch fault.Kind {
		case CallbackDuplicate:
			for range duplicates - 1 {
				after = append(after, news)
			}
		case CallbackLate:
			news.after = fault.For
		case CallbackReordered:
			after = append(after, posting{body: c.earlier()})
		case CallbackForged:
			before = append(before, posting{body: c.opposite(), forged: true, once: true})
		case CallbackStale:
			before = append(before, posting{body: c, age: staleAge, once: true})
		case CallbackOpposite:
			before = append(before, posting{body: c.opposite()})
		case CallbackGarbage:
			before = append(before, posting{raw: []byte(`{"id":"` + "\x01"), once: true})
		case CallbackRefund:
			before = append(before, posting{body: c.refund(c.Charge.Amount)})
		case CallbackPartRefund:
			after = append(after, posting{body: c.refund(c.Charge.Amount / 2)}) //nolint:mnd // half
		case CallbackWrongAmount:
			news.body.Charge.Amount--
		default:
		}
	}
	return append(append(before, news), after...)
}

package consumer

import (
	"context"

	"github.com/settleonce/settleonce/internal/callers/signing"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// Callers says which callers may write which topic, and in which namespace their
// obligations are (G12, G15). What it knows may be a copy: then it is a Refresher
// too.
type Callers interface {
	// May reports whether the topic is the caller's to write.
	May(topic, caller string) bool
	// Namespace is the caller's obligation namespace, and whether it is set to
	// "repay: named".
	Namespace(caller string) (name string, repayNamed bool)
}

// Signatures judges who wrote a record, beyond what its topic says (G12). Where its
// keys may change, it is a Refresher too.
type Signatures interface {
	// Check returns why a record is not proven to be its caller's, as a sentence; nil
	// when it is, or when the caller need not sign. signatures are the values of all
	// headers of that name.
	Check(caller string, key, value []byte, signatures []string) error
}

// Refresher brings a copy up to date: afterwards it has everything that was there
// before the call. A record is refused for its caller or its signature only by
// knowledge that is younger than the record.
type Refresher interface {
	Refresh(ctx context.Context) error
}

// AnyCaller lets every caller write every topic, each in a namespace of its own.
type AnyCaller struct{}

// May is always true.
func (AnyCaller) May(string, string) bool { return true }

// Namespace is the caller itself.
func (AnyCaller) Namespace(caller string) (string, bool) { return caller, false }

// strange says why a record is not taken for its caller's, nil when it is (G12). It
// comes before the content is judged: a stranger must not even leave a rejection
// behind under somebody's key.
func (c *Consumer) strange(d *kafka.Delivery, caller string) *store.Dead {
	if !c.cfg.Callers.May(d.Topic, caller) {
		return &store.Dead{
			Reason: payment.DeadForeignCaller,
			Error:  "caller " + caller + " may not write topic " + d.Topic,
		}
	}
	if c.cfg.Signatures == nil {
		return nil
	}
	if err := c.cfg.Signatures.Check(caller, d.Key, d.Value, signatures(d.Headers)); err != nil {
		return &store.Dead{Reason: payment.DeadBadSignature, Error: err.Error()}
	}
	return nil
}

func signatures(headers []kafka.Header) []string {
	var found []string
	for i := range headers {
		if headers[i].Key == signing.Header {
			found = append(found, string(headers[i].Value))
		}
	}
	return found
}

// refusedByCopy reports whether an arrival was refused by what may be out of date.
func refusedByCopy(a *store.Arrival) bool {
	return a.Dead != nil && (a.Dead.Reason == payment.DeadForeignCaller || a.Dead.Reason == payment.DeadBadSignature)
}

// refresh brings the copies up to date, again and again while that fails: nobody
// is refused, and nothing is claimed, by what is not known. It returns false when
// ctx ended first.
func (c *Consumer) refresh(ctx context.Context) bool {
	for _, source := range []any{c.cfg.Callers, c.cfg.Signatures} {
		copied, ok := source.(Refresher)
		if !ok {
			continue
		}
		err := settle.UntilDone(ctx, func() error { return copied.Refresh(ctx) }, func(err error) {
			c.cfg.Logger.Warn().Err(err).Msg("bring callers and their keys up to date; trying again")
		})
		if err != nil {
			return false
		}
	}
	return ctx.Err() == nil
}

// judgeCallers judges the callers of a batch anew, after the table was changed. The
// content of a command does not change by that.
func (l *lane) judgeCallers(batch []*kafka.Delivery, arrivals []store.Arrival) {
	for i := range arrivals {
		a := &arrivals[i]
		if a.Dead != nil {
			continue
		}
		if a.Dead = l.c.strange(batch[i], a.Identity.Caller); a.Dead == nil {
			a.Namespace, a.RepayNamed = l.c.cfg.Callers.Namespace(a.Identity.Caller)
		}
	}
}

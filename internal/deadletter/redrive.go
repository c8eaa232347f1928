package deadletter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// Header tells of a record that it was a dead letter, and which.
const Header = "settleonce_redrive"

// Redriven counts what a redrive did.
type Redriven struct {
	// Sent letters are in their topic again; Before had been dealt with already.
	Sent   int `json:"sent"`
	Before int `json:"before"`
	// Refused are none that anybody can stand for: see ErrRefused.
	Refused int `json:"refused"`
}

// ErrRefused marks a letter that does not show to be what it says. The others are sent.
var ErrRefused = errors.New("not sent")

// Redrive sends the letters that the filter names into their topics again, at most
// perSecond a second (0: no limit). Each is written down before it is sent, so
// that no two redrives send it; one that was interrupted in between may be sent
// again. When ctx ends the rest is left as it is.
func (d *Desk) Redrive(ctx context.Context, f *Filter, by store.Operator, perSecond float64) (done Redriven, err error) {
	if err := by.Validate(); err != nil {
		return done, err
	}
	publisher, err := d.cfg.Kafka.NewPublisher(kafka.PublisherConfig{})
	if err != nil {
		return done, err
	}
	defer closePublisher(ctx, publisher)
	limit := rate.NewLimiter(rate.Inf, 1)
	if perSecond > 0 {
		limit = rate.NewLimiter(rate.Limit(perSecond), 1)
	}
	var refused []error
	err = d.Each(ctx, f, func(l *Letter) error {
		if err := limit.Wait(ctx); err != nil {
			return fmt.Errorf("wait for the rate limit: %w", err)
		}
		err := d.send(ctx, publisher, l, by, nil)
		switch {
		case errors.Is(err, store.ErrDealtWith):
			done.Before++
			return nil
		case errors.Is(err, ErrRefused):
			if done.Refused++; len(refused) < tellRefused {
				refused = append(refused, err)
			}
			return nil
		case err == nil:
			done.Sent++
		}
		return err
	})
	return done, errors.Join(append(refused, err)...)
}

// tellRefused is how many refusals one error tells.
const tellRefused = 20

const closeTimeout = 10 * time.Second

func closePublisher(ctx context.Context, p *kafka.Publisher) {
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	_ = p.Close(closing) // everything was acknowledged, or reported
}

// RedriveEdited sends one letter again with another body. Only what came from a
// command topic can be edited, and neither its key nor its issuedAt: under another
// identity it would be another payment, and with another time a stale one would
// look fresh. The original is kept beside the new body.
func (d *Desk) RedriveEdited(ctx context.Context, id ID, body []byte, by store.Operator) error {
	if err := by.Validate(); err != nil {
		return err
	}
	publisher, err := d.cfg.Kafka.NewPublisher(kafka.PublisherConfig{})
	if err != nil {
		return err
	}
	defer closePublisher(ctx, publisher)
	return d.Each(ctx, &Filter{Any: true, IDs: []ID{id}}, func(l *Letter) error {
		if err := d.CheckEdit(l, body); err != nil {
			return err
		}
		return d.send(ctx, publisher, l, by, body)
	})
}

// CheckEdit says why a letter must not be sent again with this body.
func (d *Desk) CheckEdit(l *Letter, body []byte) error {
	if !slices.Contains(d.cfg.Commands, l.Topic) {
		return fmt.Errorf("%s came from %s: only commands can be edited, facts cannot", l.ID, l.Topic)
	}
	was, is := payment.Decode(l.Value()), payment.Decode(body)
	switch {
	case is.Err != nil:
		return fmt.Errorf("the new body is no command: %w", is.Err)
	case !was.Identified || was.Err != nil:
		return fmt.Errorf("%s has no readable key or issuedAt: nothing shows that the new body is the same payment; let the caller issue a command of its own", l.ID)
	case was.Identity != is.Identity:
		return errors.New("the new body is another payment: idempotencyKey, caller and operation must stay as they are")
	case !was.Command.IssuedAt.Equal(is.Command.IssuedAt):
		return fmt.Errorf("issuedAt must stay %s: a command does not become younger", was.Command.IssuedAt.Format(time.RFC3339Nano))
	}
	return nil
}

func (d *Desk) send(ctx context.Context, publisher *kafka.Publisher, l *Letter, by store.Operator, body []byte) error {
	change := store.LetterChange{Topic: d.cfg.Topic, Partition: l.ID.Partition, Offset: l.ID.Offset, State: store.LetterRedriving}
	value := l.record.Value
	if body != nil {
		change.Original, change.Replacement, value = l.record.Value, body, body
	}
	if l.Topic == "" {
		return fmt.Errorf("%s does not say which topic it came from: it was not written by settleonce", l.ID)
	}
	if err := d.verify(ctx, l); err != nil {
		return err
	}
	if err := d.cfg.Store.ClaimLetter(ctx, by, change); err != nil {
		return fmt.Errorf("%s: %w", l.ID, err)
	}
	headers := slices.DeleteFunc(original(&l.record), func(h kafka.Header) bool { return h.Key == Header })
	m := kafka.Message{
		Topic: l.Topic, Key: l.record.Key, Value: value,
		Headers: append(headers, kafka.Header{Key: Header, Value: []byte(l.ID.String())}),
	}
	if err := publisher.Publish(ctx, m); err != nil {
		return fmt.Errorf("send %s to %s again, which may or may not have been done; redrive it once more: %w", l.ID, l.Topic, err)
	}
	return d.cfg.Store.EndLetter(context.WithoutCancel(ctx), d.cfg.Topic, l.ID.Partition, l.ID.Offset)
}

// verify refuses a letter that is not what it says: whoever may write dead letters
// (every inbox may) could have an operator publish a command in another caller's name,
// or tell of a payment that was not (G12). A command that its topic no longer holds is
// too old to be charged in any case (G14); of facts it may be the last copy, which a
// person has to trust.
func (d *Desk) verify(ctx context.Context, l *Letter) error {
	command := slices.Contains(d.cfg.Commands, l.Topic)
	r, err := d.origin(ctx, l)
	there := r != nil
	same := there && bytes.Equal(r.Key, l.record.Key) && bytes.Equal(r.Value, l.record.Value)
	if same && !command { // by its headers an inbox knows a fact from its repetition
		same = slices.EqualFunc(original(&l.record), living(r), func(a, b kafka.Header) bool {
			return a.Key == b.Key && bytes.Equal(a.Value, b.Value)
		})
	}
	switch {
	case err != nil:
		return fmt.Errorf("compare %s with the record it came from: %w", l.ID, err)
	case same, !there && !command && d.trust:
		return nil
	case there:
		return fmt.Errorf("%w: %s is not the record at %s partition %d offset %d: it may not be what its caller wrote; "+
			"let the caller publish it again", ErrRefused, l.ID, l.Topic, l.Partition, l.Offset)
	case command:
		return fmt.Errorf("%w: the record of %s, at %s partition %d offset %d, is no longer there, so it may not be what its caller wrote; "+
			"let the caller publish it again", ErrRefused, l.ID, l.Topic, l.Partition, l.Offset)
	default:
		return fmt.Errorf("%w: the record of %s, at %s partition %d offset %d, is no longer there, so nothing shows that this is it: "+
			"look at it, and say --trust-removed", ErrRefused, l.ID, l.Topic, l.Partition, l.Offset)
	}
}

// origin is the record at the place that a letter names; nil where there is none.
func (d *Desk) origin(ctx context.Context, l *Letter) (found *kafka.Record, err error) {
	ends, err := d.cfg.Kafka.EndOffsets(ctx, l.Topic)
	if _, partition := ends[l.Partition]; errors.Is(err, kafka.ErrUnknownTopic) || err == nil && !partition {
		return nil, nil //nolint:nilnil // that it is not there is no error
	}
	if err != nil {
		return nil, err
	}
	_, err = d.cfg.Kafka.ReadRange(ctx, l.Topic, l.Partition, l.Offset, l.Offset+1, func(r kafka.Record) error {
		found = &r
		return nil
	})
	return found, err
}

// living are a record's headers without those of an earlier death.
func living(r *kafka.Record) []kafka.Header {
	return slices.DeleteFunc(slices.Clone(r.Headers), func(h kafka.Header) bool { return strings.HasPrefix(h.Key, payment.DeadHeaderPrefix) })
}

// Discard notes that nothing will be done about a letter. The record stays in the
// topic for as long as that keeps it.
func (d *Desk) Discard(ctx context.Context, id ID, by store.Operator) error {
	if err := by.Validate(); err != nil {
		return err
	}
	return d.Each(ctx, &Filter{Any: true, IDs: []ID{id}}, func(l *Letter) error {
		err := d.cfg.Store.ClaimLetter(ctx, by, store.LetterChange{
			Topic: d.cfg.Topic, Partition: l.ID.Partition, Offset: l.ID.Offset, State: store.LetterDiscarded,
		})
		if err != nil {
			return fmt.Errorf("%s: %w", l.ID, err)
		}
		return nil
	})
}

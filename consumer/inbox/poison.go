package inbox

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/payment"
)

// poison is an error that trying again does not mend.
type poison struct {
	reason payment.DeadLetterReason
	err    error
}

func (p *poison) Error() string { return p.err.Error() }

func (p *poison) Unwrap() error { return p.err }

// Poison marks a handler's error as one that trying again does not mend: the
// message becomes a dead letter at once. Nil stays nil.
func Poison(err error) error {
	if err == nil {
		return nil
	}
	return &poison{reason: payment.DeadHandlerFailed, err: err}
}

// asPoison is the error as poison: what it was marked as, or a handler that went
// on failing.
func asPoison(err error) (p *poison, marked bool) {
	if errors.As(err, &p) {
		return p, true
	}
	return &poison{reason: payment.DeadHandlerFailed, err: err}, false
}

// maxError is how much of an error a dead letter tells, in bytes.
const maxError = 1024

// deadLetter carries a record on, bytes and headers unchanged, with the reason,
// with where it came from, and with who could not handle it (G5). It keeps the
// message's own ce_id, under which it is handled when it is sent again.
func (in *Inbox) deadLetter(r *kafka.Record, p *poison) kafka.Message {
	ours := []kafka.Header{
		{Key: payment.DeadHeaderReason, Value: []byte(p.reason)},
		{Key: payment.DeadHeaderError, Value: []byte(sentence(p.Error()))},
		{Key: payment.DeadHeaderTopic, Value: []byte(r.Topic)},
		{Key: payment.DeadHeaderPartition, Value: []byte(strconv.Itoa(r.Partition))},
		{Key: payment.DeadHeaderOffset, Value: []byte(strconv.FormatInt(r.Offset, 10))},
		{Key: payment.DeadHeaderTimestamp, Value: []byte(r.Time.UTC().Format(time.RFC3339Nano))},
		{Key: payment.DeadHeaderConsumer, Value: []byte(in.cfg.Name)},
	}
	// A record that was a dead letter before keeps only its latest story.
	kept := slices.DeleteFunc(slices.Clone(r.Headers), func(h kafka.Header) bool { return strings.HasPrefix(h.Key, payment.DeadHeaderPrefix) })
	return kafka.Message{Topic: payment.NewTopics(in.cfg.Prefix).DeadLetter, Key: r.Key, Value: r.Value, Headers: append(kept, ours...)}
}

// sentence makes an error fit for a header.
func sentence(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	for len(text) > maxError {
		_, size := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-size]
	}
	return payment.Mask(text)
}

// bury publishes the dead letter, and tries until Kafka has it or ctx ends: the
// record may not be finished before.
func (in *Inbox) bury(ctx context.Context, r *kafka.Record, p *poison) error {
	for failures := 0; ; failures++ {
		err := in.publisher.Publish(ctx, in.deadLetter(r, p))
		if err == nil {
			in.stats.deadLettered.Add(1)
			in.log.Error().Err(p).Str("reason", string(p.reason)).Str("topic", r.Topic).Int("partition", r.Partition).
				Int64("offset", r.Offset).Msg("message put into the dead letters, the others go on")
			return nil
		}
		in.log.Warn().Err(err).Msg("dead letter not published, trying again")
		if err := pause(ctx, failures); err != nil {
			return err
		}
	}
}

package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

var (
	// ErrFenced says that a newer owner of the transactional id has written to
	// the partition: this producer must not publish any more (G10).
	ErrFenced = errors.New("a newer owner of this transactional id has taken over, stop publishing")
	// ErrRenew says that the broker lost or refuses the producer's numbering.
	// Check that the lease still holds, call Renew, then publish again.
	ErrRenew = errors.New("the broker does not follow this producer's numbering, renew the producer")
	// ErrMessageTooLarge says that the broker takes no message of this size.
	ErrMessageTooLarge = errors.New("message too large for the topic, raise its max.message.bytes or shrink the message")
	// ErrUnknownTopic says that the cluster has no such topic, or does not let this
	// user see it: a broker that is asked for all topics leaves those out.
	ErrUnknownTopic = errors.New("topic does not exist, create it, or grant this user Describe on it")
	// ErrInvalidTopic says that the name is not a topic name.
	ErrInvalidTopic = errors.New("not a valid topic name")
	// ErrUnauthorized says that the broker's access rules refuse the operation.
	ErrUnauthorized = errors.New("not allowed by the broker's access rules")
	// ErrTooFewBrokers says that a topic was to have more copies than there are
	// brokers.
	ErrTooFewBrokers = errors.New("fewer brokers than copies")
	// ErrRefused says that the broker's rules for the topic refuse the message.
	ErrRefused = errors.New("message refused by the broker")
	// ErrEarlierRefused says that an earlier message of the same topic and key
	// failed in the same call, so this one was not sent (order per key, G10).
	ErrEarlierRefused = errors.New("not sent: an earlier message of the same key failed")
	// ErrUnresolved says that no answer was had before the call ended: the message
	// may or may not be there, or come later. Publish it again.
	ErrUnresolved = errors.New("outcome not known, publish again")

	// ErrStalled says that the oldest unfinished record of a partition made no
	// progress for StallTimeout.
	ErrStalled = errors.New("consumer made no progress")
	// ErrOffsetOutOfRange says that the offset to read next is not in the log:
	// records were deleted before they were read, or the topic was recreated.
	ErrOffsetOutOfRange = errors.New("offset is out of range")
)

// Permanent reports whether publishing the same message again cannot succeed
// until somebody changes it, the topic or the access rules.
func Permanent(err error) bool {
	for _, p := range []error{ErrMessageTooLarge, ErrUnknownTopic, ErrInvalidTopic, ErrUnauthorized, ErrRefused} {
		if errors.Is(err, p) {
			return true
		}
	}
	return false
}

// OffsetOutOfRangeError says where; it is an ErrOffsetOutOfRange.
type OffsetOutOfRangeError struct {
	Topic     string
	Partition int
	// Offset was asked for; the log holds Earliest up to, not including, Latest
	// (both -1 when they could not be read).
	Offset, Earliest, Latest int64
}

// Error says what was asked for, what is there, and that a person must decide.
func (e *OffsetOutOfRangeError) Error() string {
	return fmt.Sprintf("topic %s partition %d: offset %d is out of range (log holds %d to %d): records were lost or the topic was "+
		"recreated, decide by hand where to go on", e.Topic, e.Partition, e.Offset, e.Earliest, e.Latest)
}

// Is matches ErrOffsetOutOfRange.
func (e *OffsetOutOfRangeError) Is(target error) bool { return target == ErrOffsetOutOfRange }

// protocolError turns an error code of a response into an error, nil for 0.
func protocolError(code int16) error {
	if code == 0 {
		return nil
	}
	return kafkago.Error(code)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// sleep waits for d or the end of ctx, whose error it returns.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	produceapi "github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/rawproduce"
)

// produced is the broker's answer to one chunk: where its first record is, or -1
// where the answer does not tell, and what went wrong.
type produced struct {
	offset int64
	err    error
}

// produce sends one request with one record batch per chunk, all led by one
// broker, and returns the answers in order.
func (c *Client) produce(ctx context.Context, timeout time.Duration, chunks []*chunk) []produced {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out := make([]produced, len(chunks))
	res, err := c.transport.RoundTrip(ctx, c.addr, produceRequest(timeout, chunks))
	answer, ok := res.(*produceapi.Response)
	if err == nil && !ok {
		err = errLeftOut
	}
	if err != nil {
		for i := range out {
			out[i] = produced{-1, err}
		}
		return out
	}
	byID := make(map[topicPartition]*produceapi.ResponsePartition, len(chunks))
	for i := range answer.Topics {
		t := &answer.Topics[i]
		for j := range t.Partitions {
			byID[topicPartition{t.Topic, int(t.Partitions[j].Partition)}] = &t.Partitions[j]
		}
	}
	for i, k := range chunks {
		p := byID[k.topicPartition]
		if p == nil {
			out[i] = produced{-1, errLeftOut}
			continue
		}
		out[i] = produced{p.BaseOffset, protocolError(p.ErrorCode)}
	}
	return out
}

// produceRequest gives the broker most of our patience for its replicas, so that
// its answer arrives before we give up.
func produceRequest(timeout time.Duration, chunks []*chunk) *rawproduce.Request {
	req := &rawproduce.Request{Acks: -1, Timeout: int32(timeout * 4 / 5 / time.Millisecond)} //nolint:gosec // seconds
	at := make(map[string]int)
	for _, k := range chunks {
		i, ok := at[k.topic]
		if !ok {
			i = len(req.Topics)
			at[k.topic] = i
			req.Topics = append(req.Topics, rawproduce.RequestTopic{Topic: k.topic})
		}
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, rawproduce.RequestPartition{
			Partition: int32(k.partition), //nolint:gosec // a partition number of the broker's
			RecordSet: protocol.RawRecordSet{Reader: bytes.NewReader(k.encoded)},
		})
	}
	return req
}

// settle takes one chunk's answer in.
func (f *fencedCall) settle(k *chunk, answer produced) {
	l, err := k.producer.lane(k.topicPartition), answer.err
	switch {
	case err == nil, errors.Is(err, kafkago.DuplicateSequenceNumber):
		l.next = after(k.sequence, len(k.messages))
		l.acked = true
		f.moved = time.Now()
		if err == nil {
			f.placed(k, answer.offset)
		}
		f.pop(k)
	case isFence(err, l, k):
		f.drop(k.producer, fmt.Errorf("%w: %w", ErrFenced, err))
	case errors.Is(err, kafkago.InvalidTimestamp):
		// A clock is wrong, ours or the broker's, and the message is not to blame: it
		// goes out with a new time and a new number once that is repaired.
		f.drop(k.producer, fmt.Errorf("%w: the broker refuses the time of the records, compare its clock with the database's: %w", ErrRenew, err))
	case isRenew(err):
		f.drop(k.producer, fmt.Errorf("%w: %w", ErrRenew, err))
	case errors.Is(err, kafkago.UnknownTopicOrPartition) && k.unknown < 5:
		k.unknown++ // the topic may just have been made, or its leader moved
		f.again(k, err)
	case !Permanent(classify(err)):
		f.again(k, err)
	case k.unsure:
		// Refused now, but an earlier send may be in the log under this number.
		// The next message must not get it: the broker would take it for a
		// repetition and drop it.
		f.drop(k.producer, fmt.Errorf("%w: refused after an answer was lost: %w", ErrRenew, err))
	default:
		f.refused(k, classify(err))
	}
}

// isFence: the broker knows a newer epoch. A gap at the very first number of an
// epoch can only mean the same.
func isFence(err error, l *lane, k *chunk) bool {
	return errors.Is(err, kafkago.InvalidProducerEpoch) || errors.Is(err, kafkago.ProducerFenced) ||
		errors.Is(err, kafkago.OutOfOrderSequenceNumber) && !l.acked && k.sequence == 0
}

func isRenew(err error) bool {
	return errors.Is(err, kafkago.OutOfOrderSequenceNumber) || errors.Is(err, kafkago.UnknownProducerId) ||
		errors.Is(err, kafkago.InvalidProducerIDMapping)
}

// again leaves the chunk at the head of its queue, with its bytes.
func (f *fencedCall) again(k *chunk, err error) {
	k.unsure = true
	f.unready++
	f.client.refresh()
	f.client.log.Debug().Err(err).Msg("publish not confirmed, sending the same bytes again")
}

// placed notes where the chunk's records are, for batches that want to know.
func (f *fencedCall) placed(k *chunk, base int64) {
	if base < 0 {
		return
	}
	for i, r := range k.refs {
		if places := f.batches[r.batch].places; places != nil {
			places[r.message] = Place{Partition: k.partition, Offset: base + int64(i)}
		}
	}
}

func (f *fencedCall) pop(k *chunk) {
	queue := f.queues[k.topicPartition]
	if len(queue) == 1 {
		delete(f.queues, k.topicPartition)
		return
	}
	f.queues[k.topicPartition] = queue[1:]
}

// drop ends a producer's part of the call: nothing of it may go out any more
// under this epoch, whose numbers are lost track of.
func (f *fencedCall) drop(p *FencedProducer, err error) {
	p.broken = err
	for tp, queue := range f.queues {
		kept := queue[:0]
		for _, k := range queue {
			if k.producer != p {
				kept = append(kept, k)
				continue
			}
			f.fail(k, err)
		}
		if len(kept) == 0 {
			delete(f.queues, tp)
			continue
		}
		f.queues[tp] = kept
	}
}

// refused isolates what the broker does not take. A refused batch used no
// numbers, so its halves are numbered anew.
func (f *fencedCall) refused(k *chunk, err error) {
	if len(k.messages) > 1 && isOfOneMessage(err) {
		f.split(k)
		return
	}
	f.fail(k, err)
	f.pop(k)
	f.skipKeys(k)
}

// isOfOneMessage reports whether one message may have spoiled its batch.
func isOfOneMessage(err error) bool {
	return errors.Is(err, ErrMessageTooLarge) || errors.Is(err, ErrRefused)
}

func (f *fencedCall) split(k *chunk) {
	n := len(k.messages) / 2
	first := &chunk{topicPartition: k.topicPartition, producer: k.producer, messages: k.messages[:n:n], bound: k.bound}
	second := &chunk{topicPartition: k.topicPartition, producer: k.producer, messages: k.messages[n:], bound: k.bound}
	if k.refs != nil {
		refs := min(n, len(k.refs))
		first.refs, second.refs = k.refs[:refs:refs], k.refs[refs:]
	}
	queue := f.queues[k.topicPartition]
	f.queues[k.topicPartition] = append([]*chunk{first, second}, queue[1:]...)
}

// skipKeys takes later messages of a refused message's key out of the queue.
func (f *fencedCall) skipKeys(refused *chunk) {
	tp := refused.topicPartition
	queue := f.queues[tp]
	for _, m := range refused.messages {
		if m.Key == nil {
			continue
		}
		for _, k := range queue {
			f.skipKey(k, m.Key)
		}
	}
	queue = slices.DeleteFunc(queue, func(k *chunk) bool { return len(k.messages) == 0 })
	if len(queue) == 0 {
		delete(f.queues, tp)
		return
	}
	f.queues[tp] = queue
}

func (f *fencedCall) skipKey(k *chunk, key []byte) {
	if k.encoded != nil {
		return // may be in the log already, must stay as it is
	}
	for i, m := range slices.Backward(k.messages) {
		if !bytes.Equal(m.Key, key) {
			continue
		}
		if i < len(k.refs) {
			f.set(k.refs[i], ErrEarlierRefused)
			k.refs = slices.Delete(slices.Clone(k.refs), i, i+1)
		}
		k.messages = slices.Delete(slices.Clone(k.messages), i, i+1)
	}
}

// classify names what an error of the broker means for the message.
func classify(err error) error {
	if err == nil {
		return nil
	}
	for kind, codes := range map[error][]kafkago.Error{
		ErrMessageTooLarge: {kafkago.MessageSizeTooLarge, kafkago.RecordListTooLarge},
		ErrUnknownTopic:    {kafkago.UnknownTopicOrPartition},
		ErrInvalidTopic:    {kafkago.InvalidTopic},
		ErrTooFewBrokers:   {kafkago.InvalidReplicationFactor},
		ErrUnauthorized: {
			kafkago.TopicAuthorizationFailed, kafkago.ClusterAuthorizationFailed,
			kafkago.TransactionalIDAuthorizationFailed, kafkago.GroupAuthorizationFailed,
		},
		ErrRefused: {kafkago.InvalidRecord, kafkago.PolicyViolation, kafkago.UnsupportedForMessageFormat},
	} {
		for _, code := range codes {
			if errors.Is(err, code) {
				return fmt.Errorf("%w: %w", kind, err)
			}
		}
	}
	return err
}

package kafka

import (
	"context"
	"time"
)

// plan places every message and cuts each producer's part of a partition into
// chunks.
func (f *fencedCall) plan(ctx context.Context) {
	f.queues = make(map[topicPartition][]*chunk)
	counts := f.partitionCounts(ctx)
	open := make(map[laneKey]*chunk)
	for i := range f.batches {
		broken := f.batches[i].Producer.broken
		for j := range f.batches[i].Messages {
			r := ref{i, j}
			m := f.message(r)
			bound := recordBound(m)
			n, known := counts[m.Topic]
			switch {
			case broken != nil:
				f.set(r, broken)
			case m.Topic == "":
				f.set(r, ErrInvalidTopic)
			case bound > maxMessageBytes:
				f.set(r, ErrMessageTooLarge)
			case !known:
				f.set(r, unresolved(ctx, ErrUnknownTopic))
			default:
				f.place(open, topicPartition{m.Topic, place(m, n)}, r, bound)
			}
		}
	}
}

// laneKey is one producer's part of a partition.
type laneKey struct {
	topicPartition

	producer *FencedProducer
}

// unresolved is permanent unless ctx ended: then the look-up was cut off.
func unresolved(ctx context.Context, permanent error) error {
	if ctx.Err() != nil {
		return ErrUnresolved
	}
	return permanent
}

// place is where a message goes: by its key, and without a key by its value, so
// that a repetition goes to the same partition.
func place(m *Message, partitions int) int {
	if m.Key == nil {
		return Partition(m.Value, partitions)
	}
	return Partition(m.Key, partitions)
}

// place puts a message into the producer's open chunk of the partition.
func (f *fencedCall) place(open map[laneKey]*chunk, tp topicPartition, r ref, bound int) {
	key := laneKey{tp, f.batches[r.batch].Producer}
	k := open[key]
	if k == nil {
		k = f.resume(tp, r)
	}
	switch {
	case k.takesRepeat(f, r):
		k.refs = append(k.refs, r)
		open[key] = k
		return
	case k == nil || k.sent || k.bound+bound > maxBatchBytes || len(k.messages) == maxBatchRecords:
		k = &chunk{topicPartition: tp, producer: key.producer, bound: batchHeaderSize}
		f.enqueue(k)
	}
	k.messages = append(k.messages, f.message(r))
	k.refs = append(k.refs, r)
	k.bound += bound
	open[key] = k
}

// resume puts what an earlier call left unresolved in front: those bytes go out
// again before anything else.
func (f *fencedCall) resume(tp topicPartition, r ref) *chunk {
	l := f.batches[r.batch].Producer.lane(tp)
	k := l.pending
	if k == nil {
		return nil
	}
	l.pending = nil
	f.enqueue(k)
	return k
}

// takesRepeat reports whether the message is the next one of a resumed chunk: the
// caller presents again what was unresolved. Where the caller presents something
// else, the resumed chunk still goes out first, and the rest follows.
func (k *chunk) takesRepeat(f *fencedCall, r ref) bool {
	return k != nil && k.sent && len(k.refs) < len(k.messages) && sameMessage(k.messages[len(k.refs)], f.message(r))
}

func (f *fencedCall) enqueue(k *chunk) {
	if f.queues[k.topicPartition] == nil {
		f.order = append(f.order, k.topicPartition)
	}
	f.queues[k.topicPartition] = append(f.queues[k.topicPartition], k)
}

// partitionCounts looks the topics up. One that is missing is asked for again
// with a fresh layout before it counts as unknown: it may just have been made.
func (f *fencedCall) partitionCounts(ctx context.Context) map[string]int {
	topics := f.wanted()
	out := make(map[string]int, len(topics))
	for attempt := 0; ; {
		meta, err := f.client.metadata(ctx, topics)
		if err == nil {
			for _, t := range meta.Topics {
				if len(t.Partitions) > 0 {
					out[t.Name] = len(t.Partitions)
				}
			}
			attempt++
		}
		if len(out) == len(topics) || attempt == 4 || ctx.Err() != nil {
			return out
		}
		f.client.refresh()
		if sleep(ctx, refreshEvery+50*time.Millisecond) != nil {
			return out
		}
	}
}

func (f *fencedCall) wanted() []string {
	seen := make(map[string]bool)
	var out []string
	for i := range f.batches {
		for j := range f.batches[i].Messages {
			if t := f.batches[i].Messages[j].Topic; t != "" && !seen[t] {
				seen[t] = true
				out = append(out, t)
			}
		}
	}
	return out
}

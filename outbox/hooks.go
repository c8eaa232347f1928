package outbox

import "context"

// hooks let tests stop a relay at the points where the model stops it. They do
// nothing in production.
type hooks struct {
	tend      func()
	mark      func(rows int)
	publish   func(shards []int16)
	published func(shards []int16)
	deadline  func(ctx context.Context) context.Context
}

func (h *hooks) beforeTend() {
	if h.tend != nil {
		h.tend()
	}
}

func (h *hooks) beforeMark(open settled) {
	if h.mark != nil {
		h.mark(len(open.rows))
	}
}

func (h *hooks) beforePublish(picked []*pick) {
	if h.publish != nil {
		h.publish(shardsOf(picked))
	}
}

func (h *hooks) afterPublish(picked []*pick) {
	if h.published != nil {
		h.published(shardsOf(picked))
	}
}

// publishContext lets a test take the deadline away, as a process that is
// stopped between looking at the clock and writing has none.
func (h *hooks) publishContext(ctx context.Context, cancel context.CancelFunc) (context.Context, context.CancelFunc) {
	if h.deadline != nil {
		ctx = h.deadline(ctx)
	}
	return ctx, cancel
}

// shardsOf lists the shards with something to publish.
func shardsOf(picked []*pick) (ids []int16) {
	for _, p := range picked {
		if len(p.rows) > 0 {
			ids = append(ids, p.shard.id)
		}
	}
	return ids
}

package fleet

import (
	"context"
	"time"
)

// Lag is how many records of the topic a consumer group has not read, as its committed
// offsets tell. A broker that is away is not waited for.
func (f *Fleet) Lag(ctx context.Context, group, topic string) (lag int64, err error) {
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ends, err := f.client.EndOffsets(ctx, topic)
	if err != nil {
		return 0, err
	}
	committed, err := f.client.CommittedOffsets(ctx, group, topic)
	if err != nil {
		return 0, err
	}
	for partition, end := range ends {
		lag += end - max(committed[partition], 0)
	}
	return lag, nil
}

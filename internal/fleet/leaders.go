package fleet

import (
	"context"
	"fmt"

	"github.com/settleonce/settleonce/internal/devstack"
)

// MoveLeaders has other brokers lead the chosen partitions, and returns how many
// moved. With one broker it is an error that wraps devstack.ErrOneBroker. Nobody
// may restart the broker meanwhile.
func (f *Fleet) MoveLeaders(ctx context.Context, chosen func(topic string, partition int32) bool) (int, error) {
	if f.embedded == nil && f.apache == nil {
		return 0, fmt.Errorf("move leaders: %w", ErrNotOurs)
	}
	if f.embedded != nil {
		f.embedded.MoveCoordinators()
	}
	return devstack.MoveLeaders(ctx, f.brokers, chosen)
}

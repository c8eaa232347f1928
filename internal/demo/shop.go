package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"

	"github.com/settleonce/settleonce/internal/check"
	"github.com/settleonce/settleonce/internal/fleet"
)

// RoleShop is a shop beside the workers, where there is one.
const RoleShop = "shop"

// Shop is a service before the commands and behind the events. Disturb has its customers
// come; its processes can be broken as workers can, what it has to do is waited for, and
// its books are judged.
type Shop struct {
	// Caller is who it is. Its obligations are in a namespace of that name, which is
	// repaid by name only.
	Caller string
	// Open starts it, and returns the processes that can be broken.
	Open func(ctx context.Context, f *fleet.Fleet) ([]*fleet.Child, error)
	// Left is how many things are under way there.
	Left func(ctx context.Context) (int64, error)
	// Check says what is wrong with its books, once nothing is under way.
	Check func(ctx context.Context) ([]check.Violation, error)
}

// open starts it. Nil is a shop that is not there, as below.
func (s *Shop) open(ctx context.Context, cfg *Config, team *crew) error {
	if s == nil {
		return nil
	}
	team.own[RoleShop] = rand.New(rand.NewPCG(cfg.Seed, 37))
	children, err := s.Open(ctx, team.fleet)
	for _, child := range children {
		team.add(RoleShop, child)
	}
	return err
}

// left says what is under way there.
func (s *Shop) left(ctx context.Context) ([]string, error) {
	if s == nil {
		return nil, nil
	}
	switch n, err := s.Left(ctx); {
	case err != nil:
		return []string{"what is under way in the shop"}, err
	case n > 0:
		return []string{fmt.Sprintf("%d things that are under way in the shop", n)}, nil
	}
	return nil, nil
}

// owns reports whether an event or a reply is about one of its payments.
func (s *Shop) owns(value []byte) bool {
	var told struct {
		Caller string `json:"caller"`
	}
	return s != nil && json.Unmarshal(value, &told) == nil && told.Caller == s.Caller
}

// check judges its books. Those of one that was not waited for to the end are not: what
// is under way is in none of them, or in one.
func (s *Shop) check(ctx context.Context, settled bool) ([]check.Violation, error) {
	if s == nil || !settled {
		return nil, nil
	}
	return s.Check(ctx)
}

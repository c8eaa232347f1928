package demo

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/settleonce/settleonce/internal/check"
	"github.com/settleonce/settleonce/internal/fleet"
)

// RoleDownstream is a service behind the events, where there is one.
const RoleDownstream = "downstream"

// Downstream is a service behind the events. Its processes can be broken as workers
// can, what it has to do is waited for, and what it did is judged.
type Downstream struct {
	// Start starts one process, the number tells those apart. It gets the settings of
	// workers.
	Start func(ctx context.Context, f *fleet.Fleet, number int, env []string) (*fleet.Child, error)
	// Left is how many records it has not read yet.
	Left func(ctx context.Context) (int64, error)
	// Look reads what it did.
	Look func(ctx context.Context) (*check.Downstream, error)
}

// open starts the processes. Nil is a service that is not there, as below.
func (d *Downstream) open(ctx context.Context, cfg *Config, team *crew, env []string) error {
	if d == nil {
		return nil
	}
	team.own[RoleDownstream] = rand.New(rand.NewPCG(cfg.Seed, 31))
	for n := range cfg.Each {
		child, err := d.Start(ctx, team.fleet, n+1, env)
		if err != nil {
			return err
		}
		team.add(RoleDownstream, child)
	}
	return nil
}

// left says what is still to be read.
func (d *Downstream) left(ctx context.Context) ([]string, error) {
	if d == nil {
		return nil, nil
	}
	switch n, err := d.Left(ctx); {
	case err != nil:
		return []string{"what the service downstream has not read"}, err
	case n > 0:
		return []string{fmt.Sprintf("%d records that the service downstream has not read", n)}, nil
	}
	return nil, nil
}

// look reads what it did. One that was not waited for to the end is not judged by what
// it did not do.
func (d *Downstream) look(ctx context.Context, settled bool) (*check.Downstream, error) {
	if d == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	did, err := d.Look(ctx)
	if err != nil {
		return nil, err
	}
	did.Behind = !settled
	return did, nil
}

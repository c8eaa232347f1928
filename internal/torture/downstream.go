package torture

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/settleonce/settleonce/internal/check"
	"github.com/settleonce/settleonce/internal/demo"
	"github.com/settleonce/settleonce/internal/downstream"
	"github.com/settleonce/settleonce/internal/fleet"
)

// service is the one behind the events: two processes with a database and a role of
// their own.
type service struct {
	network *guest
	fleet   *fleet.Fleet
	dsn     string // the direct way
	topic   string
	env     []string
}

// behind is what the run knows of it.
func (t *tormentor) behind() *demo.Downstream {
	s := &service{network: t.guests[demo.RoleDownstream], topic: t.cfg.Fleet.Prefix + downstream.Topic}
	return &demo.Downstream{Start: s.start, Left: s.left, Look: s.look}
}

// groupBehind is its consumer group.
func groupBehind(prefix string) group { return group{prefix + downstream.Name, downstream.Topic} }

func (s *service) start(ctx context.Context, f *fleet.Fleet, number int, env []string) (*fleet.Child, error) {
	if s.fleet == nil {
		s.fleet = f
		if err := s.open(ctx); err != nil {
			return nil, fmt.Errorf("open the service downstream: %w", err)
		}
	}
	return f.StartWorker(ctx, downstream.Name, number, slices.Concat(env, s.env)...)
}

// open makes the database, and its stretches of network.
func (s *service) open(ctx context.Context) error {
	address, err := s.fleet.CreateDatabase(ctx, downstream.Name)
	if err != nil {
		return err
	}
	s.dsn = address.String()
	if err := downstream.Migrate(ctx, s.dsn); err != nil {
		return err
	}
	dsn, brokers, err := s.network.lead(ctx, address, s.fleet.Brokers())
	s.env = addresses(dsn, brokers)
	return err
}

// left is how many events it has not read.
func (s *service) left(ctx context.Context) (int64, error) {
	return s.fleet.Lag(ctx, s.network.groups[0].name, s.topic)
}

// look reads what the service did.
func (s *service) look(ctx context.Context) (*check.Downstream, error) {
	conn, err := pgx.Connect(ctx, s.dsn)
	if err != nil {
		return nil, fmt.Errorf("connect to the downstream database: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	did, err := check.ReadDownstream(ctx, conn, downstream.Name)
	if err != nil {
		return nil, err
	}
	did.Topic = s.topic
	return did, nil
}

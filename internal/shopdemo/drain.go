package shopdemo

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/settleonce/settleonce/internal/fleet"
)

// busySQL counts what is under way. A payment that is with people is not, nor is its
// order, which stays open and keeps its units.
const busySQL = `SELECT (SELECT count(*) FROM settleonce_outbox.commands)
	+ (SELECT count(*) FROM shop.payments WHERE state NOT IN ('succeeded', 'declined', 'rejected', 'review'))
	+ (SELECT count(*) FROM shop.orders o WHERE state = 'open'
		AND NOT EXISTS (SELECT FROM shop.payments p WHERE p.order_id = o.id AND p.state = 'review'))
	+ (SELECT count(*) FROM shop.orders o WHERE state = 'accepted' AND NOT EXISTS (SELECT FROM shop.packing_tasks t WHERE t.order_id = o.id))
	+ (SELECT count(*) FROM shop.orders o WHERE state = 'accepted' AND NOT EXISTS (SELECT FROM shop.receipts t WHERE t.order_id = o.id))
	+ (SELECT count(*) FROM shop.receipts WHERE sent_at IS NULL)`

// underWay is how many things are, by the shop's tables.
func (s *Shop) underWay(ctx context.Context) (n int64, err error) {
	if err = s.pool.QueryRow(ctx, busySQL).Scan(&n); err != nil {
		return 0, fmt.Errorf("look at the shop: %w", err)
	}
	return n, nil
}

// Left is how many things are under way: records that its groups have not read, and
// what the tables tell.
func (s *Shop) Left(ctx context.Context) (int64, error) {
	unread, err := s.unread(ctx)
	if err != nil {
		return 0, err
	}
	known, err := s.underWay(ctx)
	return unread + known, err
}

// Drain waits until nothing is under way, twice in a row: what a group reads may make
// more for another one.
func (s *Shop) Drain(ctx context.Context, patience time.Duration) error {
	deadline := time.Now().Add(patience)
	for quiet := 0; quiet < 2; {
		left, err := s.Left(ctx)
		if err != nil {
			return err
		}
		quiet++
		if left > 0 {
			quiet = 0
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d things are still under way after %s", left, patience)
		}
		if !fleet.Pause(ctx, time.Second/2) {
			return ctx.Err()
		}
	}
	return nil
}

// ResetGroups sets the shop's groups back to the oldest message, with the operator's
// tool, while their processes are stopped. Each job must have processes of its own.
func (s *Shop) ResetGroups(ctx context.Context, say func(string)) error {
	for _, g := range Groups(s.cfg.Prefix) {
		if err := s.resetGroup(ctx, &g, say); err != nil {
			return fmt.Errorf("set group %s back: %w", g.Name, err)
		}
	}
	return nil
}

func (s *Shop) resetGroup(ctx context.Context, g *Group, say func(string)) error {
	var members []*fleet.Child
	for number := range each {
		for _, child := range s.children {
			if child.Name == s.processName(g.Job, number) {
				members = append(members, child)
			}
		}
	}
	if len(members) == 0 {
		return errors.New("it has no processes of its own")
	}
	for _, m := range members {
		if err := m.Signal(syscall.SIGTERM); err != nil {
			return err
		}
		<-m.Done()
	}
	for _, topic := range g.Topics {
		say("set group " + g.Name + " back to the start of " + topic)
		if _, err := s.fleet.Command(ctx, "replay", "--topic", topic, "--group", g.Name, "--execute", "--actor", "shop-demo", "--reason", "make shop"); err != nil {
			return err
		}
	}
	for _, m := range members {
		if err := m.Restart(ctx); err != nil {
			return err
		}
	}
	return nil
}

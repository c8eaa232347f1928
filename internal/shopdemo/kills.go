package shopdemo

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/settleonce/settleonce/internal/fleet"
)

// trade has the customers come, and kills processes meanwhile.
func (r *run) trade(ctx context.Context) error {
	kills := r.planKills()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return r.kill(ctx, kills) })
	group.Go(func() error { return r.shop.Trade(ctx) })
	return group.Wait()
}

// kill is the end of one process, and how long it stays away.
type kill struct {
	at, away time.Duration
	which    int // of the children
}

func (r *run) planKills() []kill {
	plan := make([]kill, max(r.Kills, 0))
	for i := range plan {
		plan[i] = kill{
			at: time.Duration(r.random.Int64N(int64(r.Length))), away: time.Duration(r.random.Int64N(int64(time.Second))),
			which: r.random.IntN(len(r.children)),
		}
		r.kills[role(r.children[plan[i].which])]++
	}
	return plan
}

// kill ends processes of shop and workers, and starts them again.
func (r *run) kill(ctx context.Context, plan []kill) error {
	group, ctx := errgroup.WithContext(ctx)
	locks := make([]sync.Mutex, len(r.children))
	for _, k := range plan {
		group.Go(func() error {
			if !fleet.Pause(ctx, k.at) {
				return nil
			}
			locks[k.which].Lock()
			defer locks[k.which].Unlock()
			child := r.children[k.which]
			r.Say("killed " + child.Name)
			if err := child.Kill(); err != nil {
				return err
			}
			fleet.Pause(ctx, k.away)
			return child.Restart(context.WithoutCancel(ctx))
		})
	}
	return group.Wait()
}

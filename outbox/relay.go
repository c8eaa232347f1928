package outbox

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// Relay publishes the outbox. Any number may run on one database: they share
// the shards evenly and take over from each other.
type Relay struct {
	cfg    RelayConfig
	owner  string
	source []byte
	log    zerolog.Logger
	board  *board
	lanes  [lanes]*lane
	stats  stats
	hooks  hooks

	tendSoon, prepareSoon chan struct{} // capacity 1

	depthMu    sync.Mutex
	depth      depth
	depthValid time.Time
}

// NewRelay validates cfg and returns a relay that does nothing until Run.
func NewRelay(cfg RelayConfig) (*Relay, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	owner, err := uniqueOwner(cfg.Owner)
	if err != nil {
		return nil, err
	}
	r := &Relay{
		cfg: cfg, owner: owner, source: []byte(cfg.Source),
		log:      cfg.Logger.With().Str("component", "outbox").Str("relay", owner).Logger(),
		tendSoon: make(chan struct{}, 1), prepareSoon: make(chan struct{}, 1),
	}
	r.board = newBoard(&r.cfg)
	for kind := range r.lanes {
		r.lanes[kind] = newLane(r, kind)
	}
	return r, nil
}

// Owner is the relay's name in the table of leases, unique to this value.
func (r *Relay) Owner() string { return r.owner }

// Wake tells the relay that messages were committed, without the database's
// help: for a writer in the same process. It never blocks.
func (r *Relay) Wake() {
	for _, l := range r.lanes {
		l.nudge()
	}
}

// Run relays until ctx ends: then it finishes what it is publishing, marks it
// and gives its leases back. It returns nil after that, and an error only at the
// start, when the database cannot be reached or was installed in another way;
// later trouble with the database or the brokers is waited out, and counted in
// Stats. It must not be called twice.
func (r *Relay) Run(ctx context.Context) error {
	err := r.checkInstallation(ctx)
	if err == nil {
		err = r.forget(ctx)
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	r.log.Info().Stringer("lease", r.cfg.Lease).Msg("outbox relay started")
	// Leases are kept while the lanes finish, so the helpers end after them.
	helping, stopHelping := context.WithCancel(context.WithoutCancel(ctx))
	defer stopHelping()
	var helpers, publishers sync.WaitGroup
	for _, help := range []func(context.Context){r.tendLoop, r.prepareLoop, r.raiseLoop, r.sweepLoop, r.listenLoop} {
		helpers.Go(func() { help(helping) })
	}
	for _, l := range r.lanes {
		publishers.Go(func() { l.run(ctx) })
	}
	publishers.Wait()
	stopHelping()
	helpers.Wait()
	r.leave(ctx)
	r.log.Info().Uint64("published", r.stats.published.Load()).Msg("outbox relay stopped")
	return nil
}

// checkInstallation refuses a database that was divided in another way: two
// relays would publish one key.
func (r *Relay) checkInstallation(ctx context.Context) error {
	var installed, rows int
	if err := r.cfg.Pool.QueryRow(ctx, shardsSQL).Scan(&installed, &rows); err != nil {
		return fmt.Errorf("read how the outbox is divided (is the database migrated?): %w", err)
	}
	if installed == Shards && rows == Shards {
		return nil
	}
	return fmt.Errorf("this database's outbox was installed with %d shards (%d leases), this program has %d: "+
		"run the version that installed it, the number cannot change under rows that wait", installed, rows, Shards)
}

func jitter(d time.Duration) time.Duration {
	return d + time.Duration(rand.Float64()*float64(d)/2)
}

// kick wakes a loop that waits on c; one kick is enough for many reasons.
func kick(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (r *Relay) tendNow() { kick(r.tendSoon) }

func (r *Relay) prepareNow() { kick(r.prepareSoon) }

// pause waits for d, for a kick, or for the end of ctx, which it reports.
func pause(ctx context.Context, d time.Duration, kicked <-chan struct{}) bool {
	t := time.NewTimer(max(d, time.Millisecond))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-kicked:
	case <-t.C:
	}
	return ctx.Err() == nil
}

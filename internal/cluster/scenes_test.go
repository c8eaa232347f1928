package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/internal/check"
	"github.com/settleonce/settleonce/internal/demo"
	"github.com/settleonce/settleonce/internal/devstack"
	"github.com/settleonce/settleonce/internal/fleet"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/payment"
)

// What a round does, as the report counts it.
const (
	leaderKilled = "leader killed"
	twoKilled    = "two brokers killed"
	rolled       = "brokers restarted one by one"
	moved        = "coordinators moved"
	promoted     = "standby promoted"
)

const (
	database = "settleonce"
	// patience is how long what must happen may take, on a busy machine.
	patience = 3 * time.Minute
	// outage is how long two brokers stay away at least.
	outage = 8 * time.Second
	// underWay is how long acknowledgements that were sent before may take to be counted, on a busy machine.
	underWay = 5 * time.Second
	// askDelay is how long a payment waits before its provider is asked about it, while commits may be
	// lost: the workers' lease and the channel's longest execution.
	askDelay = 11 * time.Second
)

// director breaks brokers and database servers, one after the other.
type director struct {
	pair   *devstack.Pair
	random *rand.Rand
	// separate says that a controller of its own survives the brokers.
	separate bool
	fleet    *fleet.Fleet
	scene    *demo.Scene
	topics   payment.Topics

	publisher *kafka.Publisher
	probes    int
	promotion int
	done      map[string]int
	found     []check.Violation
}

// disturb plays all scenes, and again while there is time, and returns what it saw.
func (d *director) disturb(ctx context.Context, scene *demo.Scene) ([]check.Violation, error) {
	d.scene = scene
	var err error
	if d.publisher, err = d.fleet.Client().NewPublisher(kafka.PublisherConfig{Attempts: 1, Timeout: 4 * time.Second}); err != nil {
		return nil, err
	}
	defer func() { _ = d.publisher.Close(context.WithoutCancel(ctx)) }()
	watching, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	var backwards []check.Violation
	watch.Go(func() { backwards = d.watchOffsets(watching) })
	err = d.play(ctx)
	stop()
	watch.Wait()
	return append(d.found, backwards...), err
}

func (d *director) play(ctx context.Context) error {
	begun := time.Now()
	if err := errors.Join(d.copies(ctx), d.pay(ctx, "at first", nil)); err != nil {
		return err
	}
	for {
		round := time.Now()
		for _, act := range []func(context.Context) error{d.leaderFalls, d.twoFall, d.rolling, d.coordinatorsMove, d.failover} {
			if err := act(ctx); err != nil {
				return err
			}
		}
		if time.Since(begun)+time.Since(round) > d.scene.Length {
			return nil
		}
	}
}

func (d *director) sayf(format string, args ...any) { d.scene.Say(fmt.Sprintf(format, args...)) }

// leaderFalls kills the leader of a partition of commands. Payments go on without it, and with it again.
func (d *director) leaderFalls(ctx context.Context) error {
	cluster := d.fleet.Apache()
	partitions, err := d.fleet.Client().Replicas(ctx, d.topics.Commands)
	if err != nil {
		return err
	}
	victim := partitions[d.random.IntN(len(partitions))].Leader
	node := slices.IndexFunc([]int{0, 1, 2}, func(i int) bool { return cluster.ID(i) == victim })
	if node < 0 {
		return fmt.Errorf("broker %d leads, and is none of the three", victim)
	}
	d.sayf("killing broker %d, a leader (SIGKILL)", victim)
	if err := cluster.Kill(node); err != nil {
		return err
	}
	err = d.until(ctx, "others to lead", func(ctx context.Context) error {
		return d.every(ctx, d.names(), func(r kafka.Replicas) bool { return r.Leader > 0 && r.Leader != victim })
	})
	if err != nil {
		return err
	}
	if err := d.pay(ctx, "without a leader that was killed", nil); err != nil {
		return err
	}
	if err := errors.Join(cluster.Restart(ctx, node), d.whole(ctx, d.names())); err != nil {
		return err
	}
	d.done[leaderKilled]++
	return d.pay(ctx, "when it was back", nil)
}

// twoFall kills two of three brokers. Nothing may be acknowledged that only one has; when they are back,
// everything goes on.
func (d *director) twoFall(ctx context.Context) error {
	cluster := d.fleet.Apache()
	survivor := d.random.IntN(3)
	victims := []int{(survivor + 1) % 3, (survivor + 2) % 3}
	d.sayf("killing two brokers of three (SIGKILL)")
	for _, i := range victims {
		if err := cluster.Kill(i); err != nil {
			return err
		}
	}
	if err := wait(ctx, underWay); err != nil {
		return err
	}
	before, unheard := d.scene.Published(), commands(16)
	for begun := time.Now(); time.Since(begun) < outage || !d.alone(ctx) && time.Since(begun) < patience; {
		if n := d.acknowledged(ctx, unheard); n > 0 {
			d.violationf("G5", "%d records were acknowledged while one copy was left", n)
		}
	}
	if !d.alone(ctx) {
		return errors.New("the cluster does not notice that two brokers are gone")
	}
	if after := d.scene.Published(); after != before {
		d.violationf("G5", "%d records were acknowledged while one copy was left", after-before)
	}
	d.sayf("two brokers return")
	var back errgroup.Group // together: one alone may wait for a quorum
	for _, i := range victims {
		back.Go(func() error { return cluster.Restart(ctx, i) })
	}
	if err := back.Wait(); err != nil {
		return err
	}
	d.done[twoKilled]++
	if err := d.pay(ctx, "when two brokers were back", unheard); err != nil {
		return err
	}
	return d.whole(ctx, d.names())
}

// alone tells whether the cluster knows that there is one copy of everything. Without a majority of
// controllers it can never know.
func (d *director) alone(ctx context.Context) bool {
	if !d.separate {
		return true
	}
	all, err := d.fleet.Client().Replicas(ctx, d.topics.Commands)
	return err == nil && !slices.ContainsFunc(all, func(r kafka.Replicas) bool { return len(r.InSync) > 1 })
}

// acknowledged publishes and counts what the broker confirmed.
func (d *director) acknowledged(ctx context.Context, list []payment.Command) int {
	err := d.publisher.Publish(ctx, d.messages(list)...)
	if err == nil {
		return len(list)
	}
	if each, ok := errors.AsType[kafka.PublishErrors](err); ok {
		return len(list) - len(each.Unwrap())
	}
	return 0
}

// rolling restarts the brokers one after the other, each once all copies are in step again.
func (d *director) rolling(ctx context.Context) error {
	for i := range 3 {
		d.sayf("restarting broker %d", d.fleet.Apache().ID(i))
		stopping, cancel := context.WithTimeout(ctx, patience)
		err := d.fleet.Apache().Shutdown(stopping, i)
		cancel()
		if err != nil {
			return err
		}
		if err := errors.Join(d.fleet.Apache().Restart(ctx, i), d.whole(ctx, d.names())); err != nil {
			return err
		}
	}
	d.done[rolled]++
	return d.pay(ctx, "after a rolling restart", nil)
}

// coordinatorsMove has other brokers coordinate every group and every transactional id.
func (d *director) coordinatorsMove(ctx context.Context) error {
	n, err := d.fleet.MoveLeaders(ctx, func(topic string, _ int32) bool { return strings.HasPrefix(topic, "__") })
	if err != nil {
		return err
	}
	if n == 0 {
		return errors.New("no coordinator moved")
	}
	d.sayf("moved %d partitions of the coordinators", n)
	d.done[moved]++
	return d.pay(ctx, "after coordinators moved", nil)
}

// failover kills the primary and promotes its standby. Until somebody acknowledges that, every payment is
// sent only after its provider was asked.
func (d *director) failover(ctx context.Context) error {
	d.sayf("killing the primary database (SIGKILL)")
	if err := errors.Join(d.pair.Kill(ctx), wait(ctx, time.Second)); err != nil {
		return err
	}
	if err := d.pair.Promote(ctx); err != nil {
		return err
	}
	d.promotion++
	d.sayf("promoted the standby")
	asked, begun := commands(probeCount), time.Now()
	if err := d.pay(ctx, "while commits may be lost", asked); err != nil {
		return err
	}
	if err := d.suspected(ctx, fmt.Sprintf("timeline %d, was %d", d.promotion+1, d.promotion)); err != nil {
		return err
	}
	if err := d.asked(ctx, asked, begun); err != nil {
		return err
	}
	if err := errors.Join(d.rejoin(ctx), d.recover(ctx)); err != nil {
		return err
	}
	d.done[promoted]++
	return d.pay(ctx, "after recover", nil)
}

// rejoin brings the old primary back, which must not take writes.
func (d *director) rejoin(ctx context.Context) error {
	d.sayf("the old primary returns as a standby")
	if err := d.pair.Rejoin(ctx); err != nil {
		return err
	}
	standby, err := d.pair.InRecovery(ctx, 1-d.pair.Primary())
	if err == nil && !standby {
		return errors.New("there are two primaries")
	}
	return err
}

func (d *director) suspected(ctx context.Context, why string) error {
	out, err := d.fleet.Command(ctx, "recover")
	if err == nil && !strings.Contains(out, why) {
		return fmt.Errorf("the installation should be suspect: %s; it says: %s", why, out)
	}
	return err
}

// recover acknowledges the promotion, and waits until payments are sent without being asked about again.
func (d *director) recover(ctx context.Context) error {
	out, err := d.fleet.Command(ctx, "recover", "--actor", "test", "--reason", "standby promoted, it was synchronous")
	if err != nil {
		return err
	}
	if !strings.Contains(out, "acknowledged") {
		return fmt.Errorf("recover says: %s", out)
	}
	d.sayf("recovered")
	return d.until(ctx, "payments to be sent at once again", func(ctx context.Context) error {
		list, begun := commands(probeCount), time.Now()
		if err := d.pay(ctx, "after recover", list); err != nil {
			return err
		}
		direct := 0
		err := d.ledger(ctx, list, func(c sim.Charge) {
			if c.FirstAt.Before(begun.Add(askDelay)) {
				direct++
			}
		})
		if err == nil && direct < len(list)/2 {
			err = fmt.Errorf("only %d of %d were", direct, len(list))
		}
		return err
	})
}

// asked requires that each of the payments was sent after its provider was asked: by the books no sooner
// than that takes, and by the history because it did not know the payment.
func (d *director) asked(ctx context.Context, list []payment.Command, begun time.Time) error {
	err := d.ledger(ctx, list, func(c sim.Charge) {
		if c.FirstAt.Before(begun.Add(askDelay)) {
			d.violationf("G1", "%s was sent within %s, while commits may be lost", c.ProviderKey, c.FirstAt.Sub(begun))
		}
	})
	if err != nil {
		return err
	}
	n := 0
	err = d.query(ctx, `SELECT count(DISTINCT payment) FROM settleonce.payment_history WHERE payment = ANY ($1)
		AND cause = 'commits may be lost: the provider does not know this payment'`, []any{identities(list)}, &n)
	if err == nil && n != len(list) {
		d.violationf("G1", "of %d payments %d were sent unasked, while commits may be lost", len(list), len(list)-n)
	}
	return err
}

func (d *director) violationf(guarantee, format string, args ...any) {
	d.found = append(d.found, check.Violation{Guarantee: guarantee, Text: fmt.Sprintf(format, args...)})
}

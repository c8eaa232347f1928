package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/settleonce/settleonce/internal/fleet"
)

// The roles of a demo's processes.
const (
	RoleConsumer   = "consumer"
	RoleOutbox     = "outbox"
	RoleReconciler = "reconciler"
	RoleGateway    = "gateway"
	RoleSim        = "sim"
)

// workerRoles have several processes each.
var workerRoles = []string{RoleConsumer, RoleOutbox, RoleReconciler}

// Kill is the SIGKILL of one process, some time after the first command; it is
// started again shortly after.
type Kill struct {
	Role string
	At   time.Duration
	// Again kills the process once more so long after it was started, usually
	// before it is ready; 0 does not.
	Again time.Duration
}

// ParseKill reads ROLE@SECONDS, as in outbox@7.5.
func ParseKill(text string) (Kill, error) {
	role, at, ok := strings.Cut(text, "@")
	seconds, err := strconv.ParseFloat(at, 64)
	const longest = 3600
	if !ok || err != nil || !(seconds >= 0 && seconds <= longest) || (role != RoleSim && !slices.Contains(workerRoles, role)) {
		return Kill{}, fmt.Errorf("--kill %q is not one: write ROLE@SECONDS, like outbox@7.5, with consumer, outbox, reconciler or sim", text)
	}
	return Kill{Role: role, At: time.Duration(seconds * float64(time.Second))}, nil
}

// planKills chooses moments: one kill per role in the middle, or so many at any
// moment of a run of the length.
func planKills(cfg *Config, length time.Duration) []Kill {
	kills := slices.Clone(cfg.Kill)
	random := rand.New(rand.NewPCG(cfg.Seed, 2))
	switch {
	case cfg.Kills > 0:
		roles := workerRoles
		if cfg.KillSim {
			roles = append(slices.Clone(roles), RoleSim)
		}
		for i := range cfg.Kills {
			k := Kill{Role: roles[i%len(roles)], At: time.Duration(random.Int64N(int64(length * 13 / 10)))}
			if random.IntN(4) == 0 {
				k.Again = time.Duration(random.Int64N(int64(400*time.Millisecond))) + 1
			}
			kills = append(kills, k)
		}
	case len(kills) == 0 && cfg.Kills == 0:
		for i, role := range workerRoles {
			part := length / 6
			kills = append(kills, Kill{Role: role, At: part*time.Duration(i+2) + time.Duration(random.Int64N(int64(part/2)))})
		}
		if cfg.KillSim {
			kills = append(kills, Kill{Role: RoleSim, At: length/4 + time.Duration(random.Int64N(int64(length/2)))})
		}
	}
	slices.SortStableFunc(kills, func(a, b Kill) int { return cmp.Compare(a.At, b.At) })
	return kills
}

// member is a process with a lock: it is killed or started by one at a time.
type member struct {
	*fleet.Child

	role string
	mu   sync.Mutex
}

// crew are the processes that can be killed.
type crew struct {
	fleet   *fleet.Fleet
	members []*member
	say     func(string)
	random  *rand.Rand
	// own are the random streams of roles that have one.
	own map[string]*rand.Rand

	mu      sync.Mutex
	killed  map[string]int
	last    map[string]*member // that was to crash at a point
	crashed []string
	done    bool
	busy    int // those who still break things
	lenient bool
}

func newCrew(seed uint64, say func(string)) *crew {
	return &crew{say: say, random: rand.New(rand.NewPCG(seed, 3)), own: map[string]*rand.Rand{}, killed: map[string]int{}, last: map[string]*member{}}
}

func (c *crew) add(role string, child *fleet.Child) {
	c.members = append(c.members, &member{Child: child, role: role})
}

// choose picks a process of the role and how long it stays away.
func (c *crew) choose(role string) (*member, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of, random := c.of(role), cmp.Or(c.own[role], c.random)
	return of[random.IntN(len(of))], 200*time.Millisecond + time.Duration(random.Int64N(int64(1300*time.Millisecond)))
}

// another picks a process of the role, and never the same twice in a row: a point
// that one of them does not come to, another may.
func (c *crew) another(role string) *member {
	m, _ := c.choose(role)
	c.mu.Lock()
	defer c.mu.Unlock()
	if of := c.of(role); m == c.last[role] {
		m = of[(slices.Index(of, m)+1)%len(of)]
	}
	c.last[role] = m
	return m
}

func (c *crew) of(role string) []*member {
	return slices.DeleteFunc(slices.Clone(c.members), func(m *member) bool { return m.role != role })
}

// execute kills as planned, and ends when the last one runs again.
func (c *crew) execute(ctx context.Context, kills []Kill) error {
	begun := time.Now()
	var wait sync.WaitGroup
	errs := make([]error, len(kills))
	for i, k := range kills {
		if !fleet.Pause(ctx, time.Until(begun.Add(k.At))) {
			break
		}
		m, away := c.choose(k.Role)
		wait.Go(func() { errs[i] = c.kill(ctx, m, away, k.Again) })
	}
	wait.Wait()
	c.mu.Lock()
	c.done = true
	c.mu.Unlock()
	return errors.Join(errs...)
}

// kill kills the process, leaves it away, and starts it again.
func (c *crew) kill(ctx context.Context, m *member, away, again time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := c.strike(ctx, m, away); err != nil {
		return err
	}
	if again > 0 && !over(ctx) {
		if err := m.Launch(ctx); err != nil {
			return err
		}
		fleet.Pause(ctx, again) // it is about to become ready, or not yet
		if err := c.strike(ctx, m, away); err != nil {
			return err
		}
	}
	if over(ctx) {
		return nil
	}
	if err := c.restart(ctx, m); err != nil {
		return err
	}
	c.say("started " + m.Name + " again")
	return nil
}

// strike kills a process that runs, and waits a while.
func (c *crew) strike(ctx context.Context, m *member, away time.Duration) error {
	if over(ctx) {
		return nil
	}
	if err := m.Kill(); err != nil {
		return err
	}
	c.mu.Lock()
	c.killed[m.role]++
	c.mu.Unlock()
	c.say("killed " + m.Name + " (SIGKILL)")
	fleet.Pause(ctx, away) // the end of the run is noticed by the caller
	return nil
}

// supervise starts processes again that end by themselves, which none should.
func (c *crew) supervise(ctx context.Context) error {
	for fleet.Pause(ctx, 300*time.Millisecond) {
		for _, m := range c.members {
			if err := c.revive(ctx, m); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *crew) revive(ctx context.Context, m *member) error {
	if !m.mu.TryLock() {
		return nil // it is being killed or started
	}
	defer m.mu.Unlock()
	if m.Alive() || over(ctx) {
		return nil
	}
	c.mu.Lock()
	c.crashed = append(c.crashed, m.Name)
	c.mu.Unlock()
	c.say(m.Name + " ended by itself; starting it again")
	return c.restart(ctx, m)
}

// rested reports whether no kill is to come, and every killed process runs again.
func (c *crew) rested() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.done && c.busy == 0
}

// begin and finish bracket what breaks things beside the planned kills.
func (c *crew) begin()  { c.add1(1) }
func (c *crew) finish() { c.add1(-1) }

func (c *crew) add1(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy += n
}

// restart starts a process again. While more is broken than processes, one that
// cannot become ready is left to supervise.
func (c *crew) restart(ctx context.Context, m *member) error {
	err := m.Restart(ctx)
	if err != nil && c.lenient {
		c.say(m.Name + " does not start now")
		return nil
	}
	return err
}

// end asks the process to end, and kills it when it does not.
func (m *member) end(ctx context.Context) error {
	const patience = 10 * time.Second
	if err := m.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-m.Done():
		return nil
	case <-timer.C:
	case <-ctx.Done():
	}
	return m.Kill()
}

// end ends the processes of roles in good order. An error says that one had to be
// killed.
func (c *crew) end(ctx context.Context, roles []string) error {
	const patience = time.Minute
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var all errgroup.Group
	for _, m := range c.members {
		if slices.Contains(roles, m.role) {
			all.Go(func() error { return m.End(ctx) })
		}
	}
	return all.Wait()
}

// losses are what was killed, by role, and what ended by itself.
func (c *crew) losses() (killed map[string]int, crashed []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.killed), slices.Clone(c.crashed)
}

// over reports whether the run has ended.
func over(ctx context.Context) bool { return ctx.Err() != nil }

package demo

import (
	"context"
	"syscall"
	"time"

	"github.com/settleonce/settleonce/internal/crashpoint"
	"github.com/settleonce/settleonce/internal/fleet"
	"github.com/settleonce/settleonce/internal/kafka"
)

// Scene is what Disturb may break. Its methods may be called from any goroutine;
// one process is broken by one at a time.
type Scene struct {
	Fleet *fleet.Fleet
	// Length is how long publishing takes.
	Length time.Duration

	run *run
}

// Kill kills a process of the role and starts it again a moment later.
func (s *Scene) Kill(ctx context.Context, role string) error {
	m, away := s.run.crew.choose(role)
	return s.run.crew.kill(ctx, m, away, 0)
}

// Freeze stops a process of the role (SIGSTOP) for so long, and lets it go on.
func (s *Scene) Freeze(ctx context.Context, role string, d time.Duration) error {
	m, _ := s.run.crew.choose(role)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	s.run.crew.say("stopped " + m.Name + " for " + d.String() + " (SIGSTOP)")
	fleet.Pause(ctx, d) // it goes on in any case
	return m.Signal(syscall.SIGCONT)
}

// CrashAt starts a process of the role anew so that it ends exactly at the point,
// and then as usual. It reports whether the point was reached within patience.
func (s *Scene) CrashAt(ctx context.Context, role string, point crashpoint.Point, turn string, patience time.Duration) (bool, error) {
	m := s.run.crew.another(role)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.Kill(); err != nil {
		return false, err
	}
	if err := m.LaunchOnce(ctx, crashpoint.Variable+"="+string(point)+turn); err != nil {
		return false, err
	}
	reached := false
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-m.Done():
		reached = true
	case <-timer.C:
	case <-ctx.Done():
	}
	if err := m.Kill(); err != nil {
		return reached, err
	}
	if reached {
		s.run.crew.say(m.Name + " died at " + string(point))
		s.run.crew.count(role)
	}
	if ctx.Err() != nil {
		return reached, nil
	}
	return reached, s.run.crew.restart(ctx, m)
}

// StartAnew kills a process of the role and starts it again with further settings,
// for that life only. Once it is ready, look is called with its admin address, and
// nobody else breaks it before that returns. One that does not become ready is left
// to whoever supervises.
func (s *Scene) StartAnew(ctx context.Context, role string, look func(admin string) error, env ...string) error {
	m, _ := s.run.crew.choose(role)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.Kill(); err != nil {
		return err
	}
	s.run.crew.count(role)
	if err := m.LaunchOnce(ctx, env...); err != nil {
		return err
	}
	if err := m.Await(ctx); err != nil {
		s.run.crew.say(m.Name + " does not start now")
		return nil
	}
	return look(m.Admin)
}

// Halt stops all processes of a role in good order, does something, and starts them
// again.
func (s *Scene) Halt(ctx context.Context, role string, do func() error) error {
	for _, m := range s.run.crew.members { // always in the same order
		if m.role != role {
			continue
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if err := m.end(ctx); err != nil {
			return err
		}
		defer func() {
			if !over(ctx) {
				_ = s.run.crew.restart(ctx, m) // one that does not start is left to supervise
			}
		}()
	}
	s.Say("stopped all of " + role)
	return do()
}

// Replay publishes up to n commands again that were published at any time before.
func (s *Scene) Replay(ctx context.Context, n int, pick func(int) int) error {
	return s.run.player.replay(ctx, n, pick)
}

// Published is how many records were acknowledged so far.
func (s *Scene) Published() int {
	sent, _, _ := s.run.player.progress()
	return sent
}

// Say tells whoever watches.
func (s *Scene) Say(what string) { s.run.crew.say(what) }

func (c *crew) count(role string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.killed[role]++
}

// replay publishes records again that were due before now.
func (p *player) replay(ctx context.Context, n int, pick func(int) int) error {
	now := time.Since(p.begun)
	due := 0
	for due < len(p.script.deliveries) && p.script.deliveries[due].at < now-time.Second {
		due++
	}
	if due == 0 {
		return nil
	}
	from := pick(due)
	var messages []kafka.Message
	for i := from; i < min(from+n, due); i++ {
		messages = append(messages, p.signed(&p.script.deliveries[i]))
	}
	for ctx.Err() == nil {
		if err := p.publisher.Publish(ctx, messages...); err == nil {
			return nil
		}
		fleet.Pause(ctx, 200*time.Millisecond) // the broker is away
	}
	return nil
}

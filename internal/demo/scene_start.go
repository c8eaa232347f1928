package demo

import "context"

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

package devstack

import (
	"context"
	"errors"
	"fmt"
	"syscall"
)

// Crash ends the server at once, as Postgres's "immediate" shutdown does: every
// session breaks off, nothing is written out, and the next start recovers from the
// log. Committed transactions survive. Nobody else may use the methods meanwhile.
func (p *Postgres) Crash(ctx context.Context) error {
	if err := p.proc.Stop(ctx, syscall.SIGQUIT); err != nil {
		return fmt.Errorf("crash private postgres: %w", err)
	}
	return nil
}

// Restart starts the server again on its old port, after Crash.
func (p *Postgres) Restart(ctx context.Context) error {
	p.cfg.Port = p.port
	ctx, cancel := context.WithTimeoutCause(ctx, p.cfg.StartTimeout, errors.New("private postgres did not start again in time"))
	defer cancel()
	return p.launch(ctx)
}

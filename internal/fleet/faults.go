package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/settleonce/settleonce/internal/childproc"
	"github.com/settleonce/settleonce/internal/devstack"
)

// ErrNotOurs says that broker or database are not the fleet's own, so that it may
// not break them.
var ErrNotOurs = errors.New("it is not the fleet's own, and is left alone")

// RestartPostgres breaks the private server off in the middle of everything, and
// starts it again after the pause.
func (f *Fleet) RestartPostgres(ctx context.Context, pause time.Duration) error {
	if f.postgres == nil {
		return fmt.Errorf("restart postgres: %w", ErrNotOurs)
	}
	if err := f.postgres.Crash(ctx); err != nil {
		return err
	}
	Pause(ctx, pause)
	return f.postgres.Restart(context.WithoutCancel(ctx))
}

// RestartKafka stops the broker (Apache Kafka by SIGKILL, and of three nodes the one
// that the pause gives by its milliseconds; the embedded one in good order, which is
// all it survives) and starts it again after the pause.
func (f *Fleet) RestartKafka(ctx context.Context, pause time.Duration) error {
	switch {
	case f.apache != nil:
		node := int(pause.Milliseconds()) % len(f.brokers)
		if err := f.apache.Kill(node); err != nil {
			return err
		}
		Pause(ctx, pause)
		return f.apache.Restart(context.WithoutCancel(ctx), node)
	case f.embedded != nil && f.cfg.Restartable:
		if err := f.embedded.Close(); err != nil {
			return err
		}
		Pause(ctx, pause)
		return f.startEmbedded(context.WithoutCancel(ctx))
	default:
		return fmt.Errorf("restart kafka: %w", ErrNotOurs)
	}
}

// startEmbedded starts the embedded broker, on the ports it had before. Those of one that
// may be away for a while are kept: whoever dials out meanwhile must not get one.
func (f *Fleet) startEmbedded(ctx context.Context) (err error) {
	cfg := devstack.KafkaConfig{Log: f.cfg.Log, Brokers: f.cfg.EmbeddedBrokers}
	if f.cfg.Restartable {
		cfg.DataDir = filepath.Join(f.cfg.Dir, "kafka")
		if len(f.brokers) == 0 {
			if cfg.Ports, err = childproc.FreePorts(ctx, max(1, cfg.Brokers)); err != nil {
				return fmt.Errorf("find ports for the broker: %w", err)
			}
		}
	}
	for _, address := range f.brokers {
		_, text, err := net.SplitHostPort(address)
		if err != nil {
			return fmt.Errorf("read the broker's address: %w", err)
		}
		port, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("read the broker's port: %w", err)
		}
		cfg.Ports = append(cfg.Ports, port)
	}
	broker, err := devstack.StartKafka(cfg)
	if err != nil {
		return err
	}
	f.embedded, f.brokers = broker, broker.Brokers()
	return nil
}

// Signal sends a signal to the process; one that has ended is not an error.
func (c *Child) Signal(sig os.Signal) error { return c.proc.Signal(sig) }

// Done is closed when the process, as it runs now, has ended.
func (c *Child) Done() <-chan struct{} { return c.proc.Done() }

// LaunchOnce starts the process with further settings, for this life only, and
// does not wait until it is ready.
func (c *Child) LaunchOnce(ctx context.Context, env ...string) error {
	usual := c.env
	defer func() { c.env = usual }()
	c.env = append(append([]string(nil), usual...), env...)
	return c.Launch(ctx)
}

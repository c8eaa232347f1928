package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/settleonce/settleonce/internal/childproc"
)

// Child is one process of a fleet.
type Child struct {
	// Name tells it apart: role and number.
	Name string
	// Admin is the address of its admin endpoints, or the simulator's.
	Admin string
	path  string // of the program; empty: the fleet's own
	args  []string
	env   []string
	ready string
	log   *os.File
	proc  *childproc.Process
	fleet *Fleet
	// kills counts how often it was killed.
	kills atomic.Int32
}

// StartWorker starts a process of the role ("consumer", "outbox", "reconciler" or
// "all") and waits until it is ready. The number tells those of a role apart.
func (f *Fleet) StartWorker(ctx context.Context, role string, number int, env ...string) (*Child, error) {
	port, err := childproc.FreePort(ctx)
	if err != nil {
		return nil, fmt.Errorf("find a free port: %w", err)
	}
	admin := fmt.Sprintf("127.0.0.1:%d", port)
	c := &Child{
		Name: fmt.Sprintf("%s-%d", role, number), Admin: admin, fleet: f, args: []string{role}, ready: "http://" + admin + "/readyz",
		env: slices.Concat(f.kafkaEnv(), []string{"SETTLEONCE_POSTGRES_DSN=" + f.dsn, "SETTLEONCE_ADMIN_ADDRESS=" + admin}, f.channelEnv(), env),
	}
	return c, f.launch(ctx, c)
}

// launch starts the child and waits until it is ready; it is stopped with the
// fleet.
func (f *Fleet) launch(ctx context.Context, c *Child) error {
	log, err := os.OpenFile(filepath.Join(f.cfg.Dir, c.Name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", c.Name, err)
	}
	c.log = log
	f.closers = append(f.closers, c.stop)
	return c.start(ctx)
}

func (c *Child) start(ctx context.Context) error {
	if err := c.Launch(ctx); err != nil {
		return err
	}
	return c.Await(ctx)
}

// Launch starts the process and does not wait until it is ready.
func (c *Child) Launch(ctx context.Context) error {
	proc, err := childproc.Start(ctx, childproc.Config{
		Path: cmp.Or(c.path, c.fleet.cfg.Binary), Args: c.args, Dir: c.fleet.cfg.Dir, Output: c.log,
		Env: append(append(clean(os.Environ()), c.fleet.cfg.Env...), c.env...),
	})
	if err != nil {
		return fmt.Errorf("start %s: %w", c.Name, err)
	}
	c.proc = proc
	return nil
}

// Await waits until a launched process is ready, for minutes at most: on a machine that
// does much else, joining a group alone may take one.
func (c *Child) Await(ctx context.Context) error {
	const patience = 5 * time.Minute
	err := wait(ctx, patience, func(ctx context.Context) error {
		select {
		case <-c.proc.Done():
			return fmt.Errorf("%s %w: %w", c.Name, errEnded, c.proc.Err())
		default:
			return c.askReady(ctx)
		}
	})
	if err != nil {
		return fmt.Errorf("%s does not become ready, see %s: %w\n%s", c.Name, c.log.Name(), err, tail(c.log.Name()))
	}
	return nil
}

// errEnded says that waiting for a process is in vain.
var errEnded = errors.New("ended")

func (c *Child) askReady(ctx context.Context) error {
	if c.ready == "" {
		return nil
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.ready, http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s", response.Status)
	}
	return nil
}

// Pid is the process's id now.
func (c *Child) Pid() int { return c.proc.Pid() }

// Kill ends the process at once, as a crash would (SIGKILL), and waits for its
// end.
func (c *Child) Kill() error {
	c.kills.Add(1)
	if err := c.proc.Kill(); err != nil {
		return fmt.Errorf("kill %s: %w", c.Name, err)
	}
	<-c.proc.Done()
	return nil
}

// Kills is how often it was killed.
func (c *Child) Kills() int { return int(c.kills.Load()) }

// Restart starts it again after its end, with the same settings.
func (c *Child) Restart(ctx context.Context) error { return c.start(ctx) }

// Alive reports whether the process runs.
func (c *Child) Alive() bool {
	select {
	case <-c.proc.Done():
		return false
	default:
		return true
	}
}

func (c *Child) stop(ctx context.Context) error {
	defer c.log.Close()
	if c.proc == nil || !c.Alive() {
		return nil
	}
	return c.proc.Stop(ctx, syscall.SIGTERM)
}

// End ends the process in good order (SIGTERM), and kills it when it is still there at
// the end of ctx, which is an error.
func (c *Child) End(ctx context.Context) error {
	if err := c.proc.Stop(ctx, syscall.SIGTERM); err != nil {
		return fmt.Errorf("end %s: %w", c.Name, err)
	}
	return nil
}

// clean leaves settings of ours out of the environment: children get theirs from
// the fleet alone.
func clean(env []string) []string {
	var kept []string
	for _, e := range env {
		if !strings.HasPrefix(e, "SETTLEONCE_") {
			kept = append(kept, e)
		}
	}
	return kept
}

// tail is the end of a log, for the error that says that its process failed.
func tail(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(data[max(0, len(data)-1500):])
}

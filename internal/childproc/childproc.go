// Package childproc runs server processes (Postgres, the JVM of Apache Kafka, worker processes of the
// demo) as children that cannot outlive us, and hands out ports for them.
//
// Every child gets a process group of its own, so that Ctrl-C in a terminal reaches only us and we
// stop our children in the order we want. A child whose parent is killed gets DeathSignal: from the
// kernel on Linux, from a small watcher elsewhere.
package childproc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// Config says what to run and as whom.
type Config struct {
	// Path is the program; it is not looked up on PATH.
	Path string
	// Args are the arguments without the program's name.
	Args []string
	// Dir is the working directory. It must be one that the child's user can enter. Defaults to ours.
	Dir string
	// Env is the whole environment of the child. Defaults to ours.
	Env []string
	// Output receives standard output and standard error. A file, not a pipe: a child whose parent was
	// killed must be able to write its last words. Defaults to discarding them.
	Output *os.File
	// Credential is the user to run as; only root can change it. Defaults to our own user.
	Credential *syscall.Credential
	// DeathSignal is sent to the child when we die without stopping it. Defaults to SIGKILL.
	DeathSignal syscall.Signal
}

// WithDefaults returns a copy with unset fields filled in.
func (c Config) WithDefaults() Config {
	if c.DeathSignal == 0 {
		c.DeathSignal = syscall.SIGKILL
	}
	return c
}

// Validate reports the first field that cannot work.
func (c Config) Validate() error {
	if c.Path == "" {
		return errors.New("childproc: Path is empty: name the program to run")
	}
	return nil
}

// Process is a running or ended child. All methods may be called from any goroutine.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // written before done is closed
}

// Start runs the child and returns once the program was executed. The child lives until it ends, is
// signalled, or we die; ctx is not a bound on its life.
func Start(ctx context.Context, cfg Config) (*Process, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	p := &Process{cmd: command(ctx, cfg), done: make(chan struct{})}
	started := make(chan error)
	go p.own(cfg, started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cfg.Path, err)
	}
	return p, nil
}

func command(ctx context.Context, cfg Config) *exec.Cmd {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), cfg.Path, cfg.Args...)
	cmd.Dir = cfg.Dir
	cmd.Env = cfg.Env
	if cfg.Output != nil {
		cmd.Stdout, cmd.Stderr = cfg.Output, cfg.Output
	}
	cmd.SysProcAttr = sysProcAttr(cfg)
	return cmd
}

// own starts the child, waits for it and then ends. It keeps its thread to itself the whole time: on
// Linux the kernel sends the death signal when the starting *thread* ends, not the process.
func (p *Process) own(cfg Config, started chan<- error) {
	runtime.LockOSThread()
	err := p.cmd.Start()
	if err != nil {
		started <- err
		return
	}
	release := watch(p.cmd.Process.Pid, cfg.DeathSignal)
	started <- nil
	p.err = p.cmd.Wait()
	release()
	close(p.done)
}

// Pid is the process id of the child.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the child has ended and was waited for.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err tells how the child ended: nil for exit code 0, an *exec.ExitError otherwise. Only meaningful
// once Done is closed.
func (p *Process) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// Signal sends a signal to the child. A child that has ended already is not an error.
func (p *Process) Signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal process %d: %w", p.Pid(), err)
	}
	return nil
}

// Kill sends SIGKILL and waits until the child is gone.
func (p *Process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}

// Stop sends sig, and SIGKILL when the child is still there at the end of ctx. It returns when the
// child is gone; an error says that it had to be killed.
func (p *Process) Stop(ctx context.Context, sig os.Signal) error {
	if err := p.Signal(sig); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
	}
	if err := p.Kill(); err != nil {
		return err
	}
	return fmt.Errorf("process %d did not stop in time and was killed: %w", p.Pid(), context.Cause(ctx))
}

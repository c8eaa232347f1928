package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
)

// The exit codes. A second signal exits with 128 and the signal's number, as shells do.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// errUsage marks what is wrong with the command line or the configuration: the
// same call can never succeed, so supervisors need not try again.
var errUsage = errors.New("usage")

// usageError keeps the sentence and adds the mark.
type usageError struct{ error }

func (u usageError) Unwrap() []error { return []error{u.error, errUsage} }

func asUsage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// process is one run of the program, with everything it touches, so that tests
// run the real one.
type process struct {
	// path is how the program was started; "" is the same as "settleonce".
	path           string
	args, env      []string
	stdin          io.Reader
	stdout, stderr io.Writer
	// signals ends the run: the first one drains, the second cuts short.
	signals <-chan os.Signal
}

// program is what to type to start it again.
func (p process) program() string { return cmp.Or(p.path, "settleonce") }

// variable is a variable of the process's environment; "" when it is not set.
func (p process) variable(name string) string {
	for _, pair := range p.env {
		if value, ok := strings.CutPrefix(pair, name+"="); ok {
			return value
		}
	}
	return ""
}

// run executes the command line and returns the exit code.
func (p process) run(ctx context.Context) int {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan int, 1)
	go func() { ended <- p.execute(ctx) }()
	select {
	case code := <-ended:
		return code
	case s := <-p.signals:
		cancel(signalled{s})
	}
	fmt.Fprintln(p.stderr, "settleonce: finishing what is under way; once more to stop at once")
	select {
	case code := <-ended:
		return code
	case s := <-p.signals:
		return exitCode(s)
	}
}

func (p process) execute(ctx context.Context) int {
	root := newRoot(p)
	err := root.ExecuteContext(ctx)
	var s signalled
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, context.Canceled) && errors.As(context.Cause(ctx), &s):
		return exitCode(s.Signal)
	}
	fmt.Fprintln(p.stderr, "settleonce: "+sentence(err))
	if errors.Is(err, errUsage) {
		return exitUsage
	}
	return exitFailed
}

// sentence writes several faults as one list. A line that begins with a tab
// goes on with the one before: the database driver writes like that.
func sentence(err error) string {
	lines := strings.Split(strings.ReplaceAll(err.Error(), "\n\t", " "), "\n")
	if len(lines) == 1 {
		return lines[0]
	}
	return fmt.Sprintf("%d faults:\n  %s", len(lines), strings.Join(lines, "\n  "))
}

// signalled is the cause of a run that a signal ends.
type signalled struct{ os.Signal }

func (s signalled) Error() string { return "stopped by signal: " + s.String() }

func exitCode(s os.Signal) int {
	if n, ok := s.(syscall.Signal); ok {
		return 128 + int(n)
	}
	return exitFailed
}

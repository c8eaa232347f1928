package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/settleonce/settleonce/internal/planted"
)

// tree is a copy of the repository to plant bugs in.
type tree struct {
	root    string
	verbose bool
}

// copyTree copies the files that git knows or would add, as they lie, or a commit.
func copyTree(ctx context.Context, revision string) (*tree, error) {
	root, err := os.MkdirTemp("", "settleonce-planted-*")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the copy: %w", err)
	}
	script := `git ls-files -co --exclude-standard -z | while IFS= read -r -d '' f; do [ -e "$f" ] && printf '%s\0' "$f"; done | tar -c --null -T - | tar -x -C "$1"`
	if revision != "" {
		script = `git archive "$2" | tar -x -C "$1"`
	}
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", `cd "$(git rev-parse --show-toplevel)"; `+script, "copy", root, revision)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("copy the tree: %w: %s", err, out), os.RemoveAll(root))
	}
	return &tree{root: root}, nil
}

func (t *tree) remove() error { return os.RemoveAll(t.root) }

func (t *tree) read(file string) (string, error) {
	text, err := os.ReadFile(filepath.Join(t.root, file))
	return string(text), err
}

func (t *tree) write(file, text string) error {
	return os.WriteFile(filepath.Join(t.root, file), []byte(text), 0o644) //nolint:gosec // source code
}

// try plants the bug, runs the catcher, and takes the bug out again.
func (t *tree) try(ctx context.Context, b *planted.Bug, c catcher) (v verdict, err error) {
	before := map[string]string{}
	defer func() {
		for file, text := range before {
			err = errors.Join(err, t.write(file, text))
		}
	}()
	err = b.Apply(t.read, func(file, text string) error {
		if _, seen := before[file]; !seen {
			old, err := t.read(file)
			if err != nil {
				return err
			}
			before[file] = old
		}
		return t.write(file, text)
	})
	if err != nil {
		return verdict{}, err
	}
	return c.run(ctx, t, b)
}

// output is what a command printed.
type output struct {
	stdout, both string
	code         int
}

// command runs one in the copy. A code other than 0 is no error.
func (t *tree) command(ctx context.Context, limit time.Duration, name string, args ...string) (output, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = t.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it ends what it started
	cmd.WaitDelay = 30 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	out := output{stdout: stdout.String(), both: stderr.String() + stdout.String()}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		out.code = exit.ExitCode()
	case err != nil:
		return out, fmt.Errorf("run %s %s: %w", name, strings.Join(args, " "), err)
	}
	return out, nil
}

// show prints the end of what a catcher said.
func (t *tree) show(text string) {
	if !t.verbose {
		return
	}
	const most = 6000
	if len(text) > most {
		text = text[len(text)-most:]
	}
	fmt.Println(text)
}

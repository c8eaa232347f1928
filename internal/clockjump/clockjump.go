// Package clockjump moves the clock of a process while it runs, which nothing else
// can do for a single process on Linux: Go reads the clock without a system call.
//
// A program built with `go build -overlay` and what WriteOverlay wrote has a
// package time whose Now jumps as Variable in its environment says: every reading
// of the clock in the process jumps, those of libraries too, and no line of the
// program knows of it. Monotonic readings and timers go on as they do when a
// clock is set. A program built as usual cannot do it, whatever its environment
// says. What `go` prints for a change of the standard library holds: this is for
// tests.
package clockjump

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Variable is the environment variable that a process reads at its start: a Jump.
const Variable = "SETTLEONCE_TEST_CLOCK_JUMP"

// Jump is one jump of a clock.
type Jump struct {
	// By is how far it jumps, whole seconds, backwards too.
	By time.Duration
	// After is how long the process runs before.
	After time.Duration
}

// String is what Variable holds, like "3h0m0s@2s".
func (j Jump) String() string { return j.By.String() + "@" + j.After.String() }

// ErrImpossible says that the program was built as usual.
var ErrImpossible = errors.New("its clock does not jump: it was built as usual, make torture builds a program whose clock can be moved")

// BuildFlags are the flags of `go build` for a program whose clock can be moved. The
// overlay is written to the folder.
func BuildFlags(ctx context.Context, dir string) ([]string, error) {
	path, err := writeOverlay(ctx, dir)
	if err != nil {
		return nil, err
	}
	return []string{"-overlay", path}, nil
}

// The place in package time that is changed.
const (
	reading = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	jumping = "\tsec += clockJump(mono)\n"
)

// source is added to package time, which nearly nothing can be imported into.
const source = `package time

import "syscall"

var jumpBy, jumpAfter = readJump()

func readJump() (by int64, after Duration) {
	text, _ := syscall.Getenv("` + Variable + `")
	for i := range text {
		if text[i] != '@' {
			continue
		}
		far, err := ParseDuration(text[:i])
		late, errLate := ParseDuration(text[i+1:])
		if err == nil && errLate == nil {
			return int64(far / Second), late
		}
	}
	return 0, 0
}

func clockJump(mono int64) int64 {
	if Duration(mono-startNano) < jumpAfter {
		return 0
	}
	return jumpBy
}
`

// writeOverlay writes the overlay for the toolchain on PATH.
func writeOverlay(ctx context.Context, dir string) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("find the Go toolchain: %w", err)
	}
	pkg := filepath.Join(strings.TrimSpace(string(out)), "src", "time")
	original, err := os.ReadFile(filepath.Join(pkg, "time.go"))
	if err != nil {
		return "", fmt.Errorf("read package time: %w", err)
	}
	if strings.Count(string(original), reading) != 1 {
		return "", errors.New("this Go reads its clock in another way: teach it to internal/clockjump")
	}
	changed := strings.Replace(string(original), reading, reading+jumping, 1)
	if dir, err = filepath.Abs(dir); err != nil {
		return "", fmt.Errorf("find the folder of the overlay: %w", err)
	}
	replace := map[string]string{
		filepath.Join(pkg, "time.go"):      filepath.Join(dir, "time.go.txt"),
		filepath.Join(pkg, "clockjump.go"): filepath.Join(dir, "clockjump.go.txt"),
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", fmt.Errorf("write the overlay: %w", err)
	}
	path := filepath.Join(dir, "overlay.json")
	for name, content := range map[string][]byte{
		filepath.Join(dir, "time.go.txt"): []byte(changed), filepath.Join(dir, "clockjump.go.txt"): []byte(source), path: list,
	} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			return "", fmt.Errorf("write the overlay: %w", err)
		}
	}
	return path, nil
}

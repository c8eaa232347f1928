package devstack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// killPatience is how long killed sessions may take to be gone.
const killPatience = time.Minute

// kill ends the server and every session at once with SIGKILL, as when a machine loses power: none of
// them can answer a client any more once it returns. Where /proc does not tell the sessions, it is Crash.
func (p *Postgres) kill(ctx context.Context) error {
	// A stopped server starts no further session while we look for those there are.
	if err := p.proc.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("stop private postgres: %w", err)
	}
	sessions, err := childrenOf(p.proc.Pid())
	if err != nil {
		return errors.Join(p.proc.Signal(syscall.SIGCONT), p.Crash(ctx))
	}
	if err := p.proc.Kill(); err != nil {
		return fmt.Errorf("kill private postgres: %w", err)
	}
	for _, pid := range sessions {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended with its server
	}
	ctx, cancel := context.WithTimeout(ctx, killPatience)
	defer cancel()
	for _, pid := range sessions {
		for runs(pid) {
			if !pause(ctx) {
				return fmt.Errorf("session %d of the killed postgres is still there: %w", pid, ctx.Err())
			}
		}
	}
	return nil
}

// childrenOf lists the children of a process. Sessions of Postgres have process groups of their own, so
// the group tells nothing.
func childrenOf(pid int) ([]int, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		return nil, errors.New("there is no /proc")
	}
	var children []int
	for _, path := range stats {
		state, parent, ok := readStat(path)
		if !ok || parent != pid || state == 'Z' {
			continue
		}
		child, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil {
			children = append(children, child)
		}
	}
	return children, nil
}

// runs reports whether a process has not ended. One that nobody has waited for yet has.
func runs(pid int) bool {
	state, _, ok := readStat(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return ok && state != 'Z' && state != 'X'
}

// readStat reads the state and the parent of a process. The name before them is in parentheses and may
// hold anything.
func readStat(path string) (state byte, parent int, ok bool) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, false // it has ended
	}
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(fields) < 2 {
		return 0, 0, false
	}
	parent, err = strconv.Atoi(fields[1])
	return fields[0][0], parent, err == nil
}

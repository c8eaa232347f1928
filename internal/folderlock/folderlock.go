// Package folderlock keeps two processes off one folder: a data folder that one server may use at a
// time, a cache that one process fills while the others wait.
package folderlock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

const poll = 100 * time.Millisecond

// ErrHeld means that somebody else holds the lock.
var ErrHeld = errors.New("in use by another process")

// Lock is a lock that we hold. The kernel lets go of it when we die, whatever way.
type Lock struct{ file *os.File }

// Try takes the lock of the file at path, which is made when missing, or fails with ErrHeld at once.
func Try(path string) (*Lock, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = ErrHeld
		}
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return &Lock{file: f}, nil
}

// Wait takes the lock as Try does, but waits for whoever holds it until ctx ends.
func Wait(ctx context.Context, path string) (*Lock, error) {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		lock, err := Try(path)
		if err == nil || !errors.Is(err, ErrHeld) {
			return lock, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

// Release lets go of the lock. More than once does nothing.
func (l *Lock) Release() error {
	if err := l.file.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("release lock: %w", err)
	}
	return nil
}

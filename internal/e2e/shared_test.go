package e2e_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// shared is one stack for all tests that want a channel at its best and need no
// role of their own: two consumers, two reconcilers, and some traffic, so that
// the faults of the one do not open the breaker of all.
func shared(t *testing.T) *stack {
	t.Helper()
	shareOnce.Do(func() {
		s := start(&sharedKeeper, only(1, 2, 2), patient)
		for _, r := range slices.Concat(s.consumers, s.reconcilers) {
			r.owns()
		}
		s.traffic()
		sharedStack = s
	})
	require.NotNil(t, sharedStack, "the shared stack did not start")
	view := *sharedStack
	view.t = t
	return &view
}

var (
	shareOnce    sync.Once
	sharedStack  *stack
	sharedKeeper keeper
)

// withShared ends the shared stack after the last test.
type withShared struct{ m *testing.M }

// Run implements goleak.TestingM.
func (w withShared) Run() int {
	code := w.m.Run()
	sharedKeeper.close()
	if sharedKeeper.failed != "" {
		code = max(code, 1)
	}
	return code
}

// keeper stands for a test that lasts as long as the test binary.
type keeper struct {
	testing.TB // for what cannot be implemented; never called

	mu       sync.Mutex
	cleanups []func()
	failed   string
}

// Helper does nothing.
func (*keeper) Helper() {}

// Name is a name.
func (*keeper) Name() string { return "shared" }

// Context lasts.
func (*keeper) Context() context.Context { return context.Background() }

// Log goes nowhere: there is no test to show it.
func (*keeper) Log(...any) {}

// Logf goes nowhere.
func (*keeper) Logf(string, ...any) {}

// Errorf keeps the failure.
func (k *keeper) Errorf(format string, args ...any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.failed = fmt.Sprintf(format, args...)
	fmt.Fprintln(os.Stderr, k.failed)
}

// FailNow ends what asked for it.
func (*keeper) FailNow() { panic("the shared stack failed") }

// Cleanup keeps what is to be done at the end.
func (k *keeper) Cleanup(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cleanups = append(k.cleanups, f)
}

// TempDir is a folder until the end.
func (k *keeper) TempDir() string {
	dir, err := os.MkdirTemp("", "settleonce-e2e-")
	if err != nil {
		k.Errorf("%s", err)
		k.FailNow()
	}
	k.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (k *keeper) close() {
	for _, f := range slices.Backward(k.cleanups) {
		f()
	}
}

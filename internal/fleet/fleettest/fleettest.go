// Package fleettest builds the program that the fleets of tests run.
package fleettest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/settleonce/settleonce/internal/leaktest"
)

// Program is built once, by the first test that needs it. The zero value builds it
// as usual.
type Program struct {
	// Flags are further flags of `go build`; the folder is where the program goes. Nil
	// gives none.
	Flags func(ctx context.Context, folder string) ([]string, error)

	once   sync.Once
	folder string
	err    error
}

// Main runs a package's tests, looks for goroutines that they left, removes the
// program, and exits.
func (p *Program) Main(m *testing.M) {
	goleak.VerifyTestMain(leaktest.Patient(m), goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(p.folder)
		os.Exit(code)
	}))
}

// Path builds the program unless it was built before, and returns where it is. It
// fails the test if it cannot.
func (p *Program) Path(t *testing.T) string {
	t.Helper()
	p.once.Do(func() { p.err = p.build(context.Background()) }) // it outlives the test that builds it
	require.NoError(t, p.err)
	return filepath.Join(p.folder, "settleonce")
}

func (p *Program) build(ctx context.Context) error {
	folder, err := os.MkdirTemp("", "settleonce-test-*")
	if err != nil {
		return fmt.Errorf("make a folder for the program: %w", err)
	}
	p.folder = folder
	args := []string{"build", "-o", folder}
	if p.Flags != nil {
		flags, err := p.Flags(ctx, folder)
		if err != nil {
			return fmt.Errorf("find the flags of the program: %w", err)
		}
		args = append(args, flags...)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "github.com/settleonce/settleonce/cmd/settleonce")...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the program: %w: %s", err, out)
	}
	return nil
}

package folderlock_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/folderlock"
	"github.com/settleonce/settleonce/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestLockIsExclusive(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	first, err := folderlock.Try(path)
	require.NoError(t, err)

	_, err = folderlock.Try(path)
	require.ErrorIs(t, err, folderlock.ErrHeld)

	require.NoError(t, first.Release())
	require.NoError(t, first.Release(), "a second release is harmless")
	second, err := folderlock.Try(path)
	require.NoError(t, err)
	require.NoError(t, second.Release())
}

func TestWaitTakesOver(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	first, err := folderlock.Try(path)
	require.NoError(t, err)
	taken := make(chan error, 1)
	go func() {
		second, err := folderlock.Wait(t.Context(), path)
		if err == nil {
			err = second.Release()
		}
		taken <- err
	}()
	require.NoError(t, first.Release())
	require.NoError(t, <-taken)
}

func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	first, err := folderlock.Try(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, first.Release()) }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = folderlock.Wait(ctx, path)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, folderlock.ErrHeld)
}

package cluster_test

import (
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/apachekafka"
	"github.com/settleonce/settleonce/internal/leaktest"
)

// The run's size and seed. Without a size the test is left out: it takes minutes.
const (
	paymentsEnv = "SETTLEONCE_TEST_CLUSTER_PAYMENTS"
	seedEnv     = "SETTLEONCE_TEST_CLUSTER_SEED"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// program builds what the workers run.
func program(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", dir, "../../cmd/settleonce")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return filepath.Join(dir, "settleonce")
}

// wanted reads how many payments are wanted, and the seed; a seed of 0 is a random one.
func wanted(t *testing.T) (payments int, seed uint64) {
	t.Helper()
	text := os.Getenv(paymentsEnv)
	if text == "" {
		t.Skip("run it with `make cluster`: it takes minutes, four JVMs and two database servers")
	}
	payments, err := strconv.Atoi(text)
	require.NoError(t, err, "PAYMENTS")
	if text := os.Getenv(seedEnv); text != "" {
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err, "SEED")
	}
	if seed == 0 {
		seed = rand.Uint64N(1e6) + 1
	}
	ok, reason := apachekafka.Available(context.WithoutCancel(t.Context()))
	require.True(t, ok, reason)
	return payments, seed
}

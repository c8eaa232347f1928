package leaktest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/settleonce/settleonce/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// tests are some that pass, or not, and what they leave.
type tests func() int

// Run implements goleak.TestingM.
func (t tests) Run() int { return t() }

// A goroutine that ends later than goleak by itself waits for is no leak.
//
//nolint:paralleltest // goroutines of other tests would count
func TestPatient_WaitsForWhatIsEnding(t *testing.T) {
	code := leaktest.Patient(tests(func() int {
		go func() { <-time.After(2 * time.Second) }()
		return 0
	}), goleak.IgnoreCurrent()).Run()
	require.Zero(t, code)
	require.NoError(t, goleak.Find(goleak.IgnoreCurrent()))
}

// Tests that failed are told at once.
//
//nolint:paralleltest // goroutines of other tests would count
func TestPatient_TellsFailuresAtOnce(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	require.Equal(t, 3, leaktest.Patient(tests(func() int {
		go func() { <-release }()
		return 3
	})).Run())
}

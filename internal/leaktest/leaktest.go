// Package leaktest looks for goroutines that tests left, with the patience of a busy machine: goleak gives
// those that are ending half a second, in which such a machine may not run them at all.
package leaktest

import (
	"time"

	"go.uber.org/goleak"
)

// patience is how long goroutines may take to end. Only a leak is waited for that long.
const patience = time.Minute

// Main runs a package's tests (m is a *testing.M, or what wraps one), fails when a goroutine is left, and
// exits.
func Main(m goleak.TestingM, options ...goleak.Option) {
	goleak.VerifyTestMain(Patient(m, options...), options...)
}

// Patient is m, which after its tests waits for goroutines that are ending. The options are those that say
// which may stay.
func Patient(m goleak.TestingM, options ...goleak.Option) goleak.TestingM {
	return patient{m, options}
}

type patient struct {
	goleak.TestingM

	options []goleak.Option
}

// Run implements goleak.TestingM.
func (p patient) Run() int {
	code := p.TestingM.Run()
	for end := time.Now().Add(patience); code == 0 && time.Now().Before(end) && goleak.Find(p.options...) != nil; {
		continue // Find waits a while each time
	}
	return code
}

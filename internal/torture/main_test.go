package torture

import (
	"testing"

	"github.com/settleonce/settleonce/internal/clockjump"
	"github.com/settleonce/settleonce/internal/fleet/fleettest"
)

// program is what the fleets of these tests run: its clock can be moved.
var program = fleettest.Program{Flags: clockjump.BuildFlags}

func TestMain(m *testing.M) { program.Main(m) }

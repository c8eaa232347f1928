package telemetry_test

import (
	"testing"

	"github.com/settleonce/settleonce/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

package backfill_test

import (
	"testing"

	"github.com/settleonce/settleonce/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

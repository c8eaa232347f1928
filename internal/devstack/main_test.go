package devstack_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/settleonce/settleonce/internal/devstack"
	"github.com/settleonce/settleonce/internal/leaktest"
)

// helperEnv makes the test binary start a Postgres on the folder it names, say its pid and wait for
// the end of standard input: a parent that a test can kill, or run as another user.
const helperEnv = "SETTLEONCE_DEVSTACK_HELPER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperEnv); dir != "" {
		if err := helper(context.Background(), dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	leaktest.Main(m)
}

func helper(ctx context.Context, dir string) error {
	pg, err := devstack.StartPostgres(ctx, devstack.PostgresConfig{DataDir: dir})
	if err != nil {
		return err
	}
	fmt.Println(pg.Pid())
	_, _ = io.Copy(io.Discard, os.Stdin)
	return pg.Stop(ctx)
}

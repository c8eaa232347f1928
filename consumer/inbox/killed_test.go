package inbox_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/consumer/inbox"
)

// What the child of TestB13_KilledBetweenMarkerAndCommit is told.
const (
	childDSN     = "SETTLEONCE_TEST_INBOX_DSN"
	childBrokers = "SETTLEONCE_TEST_INBOX_BROKERS"
)

// A process is killed after the marker and the work, before their commit: neither
// is there, and the next process does the work, once.
func TestB13_KilledBetweenMarkerAndCommit(t *testing.T) {
	t.Parallel()
	if os.Getenv(childDSN) != "" {
		runChild(t)
		return
	}
	w := newWorld(t)
	w.events("order-1", 1, 2)
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestB13_KilledBetweenMarkerAndCommit$")
	child.Env = append(os.Environ(), childDSN+"="+w.pool.Config().ConnString(), childBrokers+"="+strings.Join(w.cluster.ListenAddrs(), ","))
	out, err := child.CombinedOutput()
	require.ErrorContains(t, err, "killed", string(out))
	require.Empty(t, w.tasks())
	require.Zero(t, w.count("SELECT count(*) FROM settleonce_inbox.processed"))
	in, _ := w.run(work, nil)
	w.handled(in, 2)
	require.Equal(t, map[string][]int{"order-1": {1, 2}}, w.tasks())
}

// runChild is an inbox that dies in its handler, when its work is done and its
// marker written.
func runChild(t *testing.T) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), os.Getenv(childDSN))
	require.NoError(t, err)
	in, err := inbox.New(inbox.Config{
		Name: "packing", Topics: []string{"payment.events"}, Pool: pool, Brokers: strings.Split(os.Getenv(childBrokers), ","),
		Handler: func(ctx context.Context, tx pgx.Tx, m *inbox.Message) error {
			if err := work(ctx, tx, m); err != nil {
				return err
			}
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		},
	})
	require.NoError(t, err)
	require.NoError(t, in.Run(t.Context()))
}

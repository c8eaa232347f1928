package inbox_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/consumer/inbox"
	"github.com/settleonce/settleonce/internal/crashpoint"
)

// What the child of TestB13_KilledBetweenMarkerAndCommit is told.
const (
	childDSN     = "SETTLEONCE_TEST_INBOX_DSN"
	childBrokers = "SETTLEONCE_TEST_INBOX_BROKERS"
)

// A process is killed between two steps. Before the commit neither marker nor work
// is there, and the next process does the work, once; after it both are, and the next
// process, which gets the messages again, does nothing.
func TestB13_KilledBetweenMarkerAndCommit(t *testing.T) {
	t.Parallel()
	if os.Getenv(childDSN) != "" {
		runChild(t)
		return
	}
	for _, point := range []crashpoint.Point{crashpoint.InboxMarked, crashpoint.InboxHandled, crashpoint.InboxAdvanced, crashpoint.InboxCommitted} {
		t.Run(string(point), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.events("order-1", 1, 2)
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestB13_KilledBetweenMarkerAndCommit$")
			child.Env = append(os.Environ(), childDSN+"="+w.pool.Config().ConnString(), childBrokers+"="+strings.Join(w.cluster.ListenAddrs(), ","),
				crashpoint.Variable+"="+string(point))
			out, err := child.CombinedOutput()
			require.ErrorContains(t, err, "killed", string(out))
			applied := w.count("SELECT count(*) FROM tasks")
			require.Equal(t, point == crashpoint.InboxCommitted, applied > 0)
			require.Equal(t, applied, w.count("SELECT count(*) FROM settleonce_inbox.processed"))
			in, _ := w.run(work, nil)
			w.handled(in, 2)
			require.EqualValues(t, applied, in.Stats().Repeated)
			require.Equal(t, map[string][]int{"order-1": {1, 2}}, w.tasks())
		})
	}
}

// runChild is an inbox that dies at the point that its environment says.
func runChild(t *testing.T) {
	t.Helper()
	require.NoError(t, crashpoint.Arm(os.Getenv(crashpoint.Variable)))
	pool, err := pgxpool.New(t.Context(), os.Getenv(childDSN))
	require.NoError(t, err)
	in, err := inbox.New(inbox.Config{
		Name: "packing", Topics: []string{"payment.events"}, Pool: pool, Brokers: strings.Split(os.Getenv(childBrokers), ","), Handler: work,
		SessionTimeout: 6 * time.Second, // the next process waits for it
	})
	require.NoError(t, err)
	require.NoError(t, in.Run(context.WithoutCancel(t.Context())))
}

// An inbox is stopped, in good order, while a message has been tried and not done: its
// offset stays where it is, and the next process does it (G5).
func TestB13_StoppedBeforeTheEffect(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.events("order-1", 1)
	tried := make(chan struct{}, 100)
	_, stop := w.run(func(context.Context, pgx.Tx, *inbox.Message) error {
		tried <- struct{}{}
		return errors.New("not now")
	}, func(c *inbox.Config) { c.Attempts = 100 })
	<-tried
	<-tried
	stop()
	in, _ := w.run(work, nil)
	w.handled(in, 1)
	require.Equal(t, map[string][]int{"order-1": {1}}, w.tasks())
}

package devstack_test

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/devstack"
)

func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := devstack.TempDir("settleonce-devstack-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

func startPostgres(t *testing.T, cfg devstack.PostgresConfig) *devstack.Postgres {
	t.Helper()
	pg, err := devstack.StartPostgres(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pg.Stop(context.WithoutCancel(t.Context()))) })
	return pg
}

func query[T any](t *testing.T, dsn, sql string) T {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(t.Context())) }()
	rows, err := conn.Query(t.Context(), sql)
	require.NoError(t, err)
	value, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	require.NoError(t, err)
	return value
}

func TestPostgresKeepsDataOverRestart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "pg")

	pg := startPostgres(t, devstack.PostgresConfig{DataDir: dir})
	require.NoError(t, pg.CreateDatabase(t.Context(), "shop"))
	require.NoError(t, pg.CreateDatabase(t.Context(), "shop"), "a second time is no error")
	conn, err := pgx.Connect(t.Context(), pg.DSN("shop"))
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "CREATE TABLE kept AS SELECT 1 AS one")
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	require.NoError(t, pg.Stop(t.Context()))

	again := startPostgres(t, devstack.PostgresConfig{DataDir: dir})
	require.Equal(t, 1, query[int](t, again.DSN("shop"), "SELECT one FROM kept"))
}

func TestPostgresSettings(t *testing.T) {
	t.Parallel()

	t.Run("durable by default", func(t *testing.T) {
		t.Parallel()
		pg := startPostgres(t, devstack.PostgresConfig{
			DataDir:  filepath.Join(tempDir(t), "pg"),
			Settings: map[string]string{"work_mem": "5MB"},
		})
		const sql = "SELECT concat_ws(', ', current_setting('fsync'), current_setting('max_connections'), " +
			"current_setting('synchronous_commit'), current_setting('work_mem'), current_setting('listen_addresses'))"
		require.Equal(t, "on, 200, on, 5MB, 127.0.0.1", query[string](t, pg.DSN("postgres"), sql))
	})

	t.Run("asks for a password", func(t *testing.T) {
		t.Parallel()
		pg := startPostgres(t, devstack.PostgresConfig{DataDir: filepath.Join(tempDir(t), "pg"), Fast: true})
		require.Equal(t, "off", query[string](t, pg.DSN("postgres"), "SHOW fsync"))
		cfg, err := pgx.ParseConfig(pg.DSN("postgres"))
		require.NoError(t, err)
		cfg.Password = "guess"
		_, err = pgx.ConnectConfig(t.Context(), cfg)
		require.ErrorContains(t, err, "28P01")
	})
}

func TestPostgresFolderRules(t *testing.T) {
	t.Parallel()

	t.Run("one server at a time", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(tempDir(t), "pg")
		startPostgres(t, devstack.PostgresConfig{DataDir: dir, Fast: true})
		_, err := devstack.StartPostgres(t.Context(), devstack.PostgresConfig{DataDir: dir, Fast: true})
		require.ErrorContains(t, err, "in use by another process")
	})

	t.Run("not a folder of others", func(t *testing.T) {
		t.Parallel()
		dir := tempDir(t)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "thesis.txt"), nil, 0o600))
		_, err := devstack.StartPostgres(t.Context(), devstack.PostgresConfig{DataDir: dir})
		require.ErrorContains(t, err, "holds other things")
	})

	t.Run("not where the server's user cannot go", func(t *testing.T) {
		t.Parallel()
		if os.Geteuid() != 0 {
			t.Skip("only root starts the server as another user")
		}
		dir := tempDir(t)
		require.NoError(t, os.Chmod(dir, 0o700))
		_, err := devstack.StartPostgres(t.Context(), devstack.PostgresConfig{DataDir: filepath.Join(dir, "pg")})
		require.ErrorContains(t, err, "cannot enter "+dir)
	})
}

func TestPostgresOfKilledServer(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "pg")
	pg := startPostgres(t, devstack.PostgresConfig{DataDir: dir})
	require.NoError(t, pg.CreateDatabase(t.Context(), "survivor"))
	require.NoError(t, syscall.Kill(pg.Pid(), syscall.SIGKILL))
	<-pg.Done()
	_ = pg.Stop(t.Context()) // gives the folder back

	// By now the number in the pid file may be any other process; here it is this test.
	pidFile := filepath.Join(dir, "data", "postmaster.pid")
	raw, err := os.ReadFile(pidFile)
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(raw), "\n")
	require.NoError(t, os.WriteFile(pidFile, []byte(strconv.Itoa(os.Getpid())+"\n"+rest), 0o600))

	again := startPostgres(t, devstack.PostgresConfig{DataDir: dir})
	require.Equal(t, 1, query[int](t, again.DSN("survivor"), "SELECT 1"))
}

// parent is the test binary running as a process that owns a Postgres.
type parent struct {
	cmd       *exec.Cmd
	stdin     io.Closer
	serverPid int
}

func startParent(t *testing.T, dir string, credential *syscall.Credential) *parent {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	// A copy, since go test builds into a folder that only we can enter.
	program := filepath.Join(filepath.Dir(dir), "parent")
	raw, err := os.ReadFile(self)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(program, raw, 0o755))

	cmd := exec.CommandContext(t.Context(), program)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), helperEnv+"="+dir)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err)
	return &parent{cmd: cmd, stdin: stdin, serverPid: pid}
}

func TestPostgresDiesWithItsParent(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "pg")
	p := startParent(t, dir, nil)
	require.NoError(t, p.cmd.Process.Kill())
	_ = p.cmd.Wait()

	// At once, while the orphan is on its way out.
	again := startPostgres(t, devstack.PostgresConfig{DataDir: dir})
	require.Equal(t, 1, query[int](t, again.DSN("postgres"), "SELECT 1"))
	require.Eventually(t, func() bool {
		return syscall.Kill(p.serverPid, 0) == syscall.ESRCH
	}, wait, 10*time.Millisecond)
}

func TestPostgresAsNormalUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("all the other tests run as a normal user here")
	}
	const nobody = 65534
	dir := tempDir(t)
	home := filepath.Join(dir, "home")
	require.NoError(t, os.Mkdir(home, 0o700))
	require.NoError(t, os.Chown(home, nobody, nobody))
	p := startParent(t, filepath.Join(home, "pg"), &syscall.Credential{Uid: nobody, Gid: nobody})
	require.NoError(t, p.stdin.Close())
	require.NoError(t, p.cmd.Wait())
}

func TestPostgresConfigRefusals(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		cfg  devstack.PostgresConfig
		want string
	}{
		"no folder":       {devstack.PostgresConfig{}, "name a folder"},
		"impossible port": {devstack.PostgresConfig{DataDir: "x", Port: 70000}, "use 0 for a free one"},
		"few connections": {devstack.PostgresConfig{DataDir: "x", MaxConnections: 1}, "allow at least 10"},
		"no such program": {devstack.PostgresConfig{DataDir: "x", BinDir: "/nowhere"}, "find initdb"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := devstack.StartPostgres(t.Context(), test.cfg)
			require.ErrorContains(t, err, test.want)
		})
	}
}

package devstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/settleonce/settleonce/internal/childproc"
	"github.com/settleonce/settleonce/internal/folderlock"
)

// Pair is a Postgres primary with a synchronous standby: a commit is acknowledged once both have it on
// disk. Its methods are for one goroutine at a time; DSN and InRecovery are for any.
//
// A primary that was killed can come back in one way only: as the standby of the one that took over,
// with a copy of that one's data (Rejoin). There is never a second primary.
type Pair struct {
	cfg   PostgresConfig
	nodes [2]*Postgres
	// primary is the index of the node that takes writes.
	primary int
}

// StartPair starts a primary and a standby, each in a folder of its own below DataDir, on free ports
// that stay the same. It returns once commits wait for the standby. Port must not be set, and DataDir
// must be new.
func StartPair(ctx context.Context, cfg PostgresConfig) (*Pair, error) {
	cfg = cfg.WithDefaults()
	if cfg.Port != 0 {
		return nil, errors.New("pair of postgres: Port is set, and there are two servers: use 0")
	}
	p := &Pair{cfg: cfg}
	primary, err := StartPostgres(ctx, p.nodeConfig(0))
	if err != nil {
		return nil, err
	}
	primary.cfg.Port = primary.port // it keeps it when it comes back
	p.nodes[0] = primary
	if err := p.addStandby(ctx); err != nil {
		return nil, errors.Join(err, p.Stop(context.WithoutCancel(ctx)))
	}
	return p, nil
}

func nodeName(i int) string { return "node" + strconv.Itoa(i+1) }

func (p *Pair) nodeConfig(i int) PostgresConfig {
	cfg := p.cfg
	cfg.DataDir = filepath.Join(p.cfg.DataDir, nodeName(i))
	return cfg
}

// DSN is the connection string of a database on whichever of the two takes writes; it contains the
// password.
func (p *Pair) DSN(database string) string {
	hosts := make([]string, 0, len(p.nodes))
	for _, n := range p.nodes {
		hosts = append(hosts, net.JoinHostPort("127.0.0.1", strconv.Itoa(n.port)))
	}
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(PostgresUser, p.nodes[0].password), Host: strings.Join(hosts, ","), Path: "/" + database,
		RawQuery: "sslmode=disable&target_session_attrs=read-write",
	}
	return u.String()
}

// CreateDatabase makes a database unless there is one of that name already.
func (p *Pair) CreateDatabase(ctx context.Context, name string) error {
	return p.nodes[p.primary].CreateDatabase(ctx, name)
}

// Kill ends the primary and all its sessions with SIGKILL, and returns once none of them can answer
// anybody. Writes fail until Promote.
func (p *Pair) Kill(ctx context.Context) error {
	p.cfg.Log.Warn().Str("node", nodeName(p.primary)).Msg("killing the primary")
	return p.nodes[p.primary].kill(ctx)
}

// KillStandby does the same to the standby. Commits wait until the end of their callers' patience: the
// primary alone acknowledges nothing.
func (p *Pair) KillStandby(ctx context.Context) error {
	p.cfg.Log.Warn().Str("node", nodeName(1-p.primary)).Msg("killing the standby")
	return p.nodes[1-p.primary].kill(ctx)
}

// Promote makes the standby the primary, and returns once it takes writes. It refuses while the old
// primary lives. From then on commits are on one server only, until Rejoin.
func (p *Pair) Promote(ctx context.Context) error {
	select {
	case <-p.nodes[p.primary].Done():
	default:
		return errors.New("promote the standby: the primary is alive, kill it first, or there would be two")
	}
	standby := 1 - p.primary
	var promoted bool
	if err := p.ask(ctx, standby, &promoted, "SELECT pg_promote(true, 60)"); err != nil {
		return fmt.Errorf("promote the standby: %w", err)
	}
	if !promoted {
		return errors.New("promote the standby: it did not become a primary within 60 s, see its log")
	}
	p.primary = standby
	return nil
}

// Rejoin brings the old primary back, after Promote, as a standby of the new one: its data is thrown away
// and copied anew. It returns once commits wait for it.
func (p *Pair) Rejoin(ctx context.Context) error {
	old := p.nodes[1-p.primary]
	select {
	case <-old.Done():
	default:
		return errors.New("rejoin: the old primary is alive; it is a standby already")
	}
	if err := os.RemoveAll(old.layout.database()); err != nil {
		return fmt.Errorf("throw away the old primary's data: %w", err)
	}
	return p.follow(ctx)
}

// InRecovery reports whether node i, 0 or 1, is a standby.
func (p *Pair) InRecovery(ctx context.Context, i int) (bool, error) {
	var standby bool
	err := p.ask(ctx, i, &standby, "SELECT pg_is_in_recovery()")
	return standby, err
}

// Primary is the index of the node that takes writes.
func (p *Pair) Primary() int { return p.primary }

// Stop ends both servers, the primary first: it waits until its standby has everything. Safe to call more
// than once.
func (p *Pair) Stop(ctx context.Context) error {
	var errs []error
	for _, i := range []int{p.primary, 1 - p.primary} {
		switch n := p.nodes[i]; {
		case n == nil:
		case n.proc == nil:
			errs = append(errs, n.lock.Release())
		default:
			errs = append(errs, n.Stop(ctx))
		}
	}
	return errors.Join(errs...)
}

// addStandby prepares the second node, with the password of the first.
func (p *Pair) addStandby(ctx context.Context) error {
	primary := p.nodes[0]
	cfg := p.nodeConfig(1)
	dir, err := filepath.Abs(cfg.DataDir)
	if err != nil {
		return fmt.Errorf("resolve data folder: %w", err)
	}
	standby := &Postgres{cfg: cfg, layout: layout(dir), binDir: primary.binDir, owner: primary.owner, password: primary.password}
	if err := standby.owner.makeFolder(dir); err != nil {
		return err
	}
	if standby.port, err = childproc.FreePort(ctx); err != nil {
		return err
	}
	standby.cfg.Port = standby.port
	if standby.lock, err = folderlock.Try(standby.layout.lock()); err != nil {
		return err
	}
	p.nodes[1] = standby
	return p.follow(ctx)
}

// follow copies the primary's data, starts the other node on it as a standby, and lets commits wait for
// it from then on.
func (p *Pair) follow(ctx context.Context) error {
	primary, standby := p.nodes[p.primary], p.nodes[1-p.primary]
	if err := standby.copyFrom(ctx, primary, nodeName(1-p.primary)); err != nil {
		return err
	}
	starting, cancel := context.WithTimeoutCause(ctx, standby.cfg.StartTimeout, errors.New("the standby did not start in time"))
	defer cancel()
	if err := standby.launch(starting); err != nil {
		return err
	}
	// After the copy, so that the standby does not have the setting: a promoted one would wait for nobody.
	for _, sql := range []string{
		"ALTER SYSTEM SET synchronous_standby_names = '" + nodeName(1-p.primary) + "'", "SELECT pg_reload_conf()",
	} {
		if err := p.ask(ctx, p.primary, nil, sql); err != nil {
			return fmt.Errorf("let commits wait for the standby: %w", err)
		}
	}
	return p.awaitSync(starting)
}

// awaitSync waits until the primary knows its standby as the one that commits wait for.
func (p *Pair) awaitSync(ctx context.Context) error {
	for {
		var sync int
		err := p.ask(ctx, p.primary, &sync, "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'")
		if err == nil && sync == 1 {
			return nil
		}
		if !pause(ctx) {
			return fmt.Errorf("the standby does not become synchronous: %w", errors.Join(context.Cause(ctx), err))
		}
	}
}

// ask runs a statement on one of the nodes; into is nil where nothing is to be read.
func (p *Pair) ask(ctx context.Context, i int, into any, sql string) error {
	conn, err := pgx.Connect(ctx, p.nodes[i].DSN("postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if into == nil {
		_, err = conn.Exec(ctx, sql)
		return err
	}
	return conn.QueryRow(ctx, sql).Scan(into)
}

// copyFrom makes a copy of a running primary's data, with what a standby of that name needs to follow it.
func (p *Postgres) copyFrom(ctx context.Context, primary *Postgres, name string) error {
	target := (&url.URL{
		Scheme: "postgres", User: url.User(PostgresUser), Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(primary.port)),
		RawQuery: url.Values{"application_name": {name}, "sslmode": {"disable"}}.Encode(),
	}).String()
	cmd := exec.CommandContext(ctx, filepath.Join(p.binDir, "pg_basebackup"),
		"-D", p.layout.database(), "-d", target, "--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-password")
	cmd.Dir = string(p.layout)
	cmd.Env = append(p.environment(), "PGPASSWORD="+p.password)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.owner.credential, Setpgid: true}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("copy the primary with pg_basebackup: %w\n%s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

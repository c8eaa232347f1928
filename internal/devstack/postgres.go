package devstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"github.com/settleonce/settleonce/internal/childproc"
	"github.com/settleonce/settleonce/internal/folderlock"
)

// PostgresUser is the superuser of a private Postgres.
const PostgresUser = "settleonce"

const (
	startTries      = 3
	readyPoll       = 20 * time.Millisecond
	defaultStart    = 5 * time.Minute
	maxSocketFolder = 80 // a socket's whole path has to stay below 104 bytes on macOS, 108 on Linux
)

// PostgresConfig says where a private Postgres lives and how it behaves.
type PostgresConfig struct {
	// DataDir holds the database, its password, log and socket; it is made when missing and survives
	// restarts. Only one server at a time may use it. Run as root, it must lie where an unprivileged
	// user can reach it (not below /root), since Postgres refuses to run as root.
	DataDir string
	// Port to listen on at 127.0.0.1. Defaults to a free one, a new one at each start.
	Port int
	// Fast trades durability for speed (no fsync): a crash of the machine loses the database. For
	// tests only. Defaults to false: fsync and synchronous_commit are on, as in production.
	Fast bool
	// SharedBuffers is Postgres's own cache, in its notation. Defaults to "256MB".
	SharedBuffers string
	// MaxConnections bounds the connections of all clients together. Defaults to 200.
	MaxConnections int
	// Settings are further settings of postgresql.conf, and win over all of ours. Defaults to none.
	Settings map[string]string
	// BinDir is the folder with initdb and postgres. Defaults to looking for one, and fetching one
	// where none is found.
	BinDir string
	// StartTimeout bounds a start, without the time of a fetch. Defaults to 5 minutes, enough
	// for the recovery of a server that was killed, on a machine that is busy with other things.
	StartTimeout time.Duration
	// Log is told what happens. Defaults to nothing.
	Log zerolog.Logger
}

// WithDefaults returns a copy with unset fields filled in.
func (c PostgresConfig) WithDefaults() PostgresConfig {
	if c.SharedBuffers == "" {
		c.SharedBuffers = "256MB"
	}
	if c.MaxConnections == 0 {
		c.MaxConnections = 200
	}
	if c.StartTimeout == 0 {
		c.StartTimeout = defaultStart
	}
	return c
}

// Validate reports the first field that cannot work, and what to change.
func (c PostgresConfig) Validate() error {
	switch {
	case c.DataDir == "":
		return errors.New("private postgres: DataDir is empty: name a folder for its data")
	case c.Port < 0 || c.Port > 65535:
		return fmt.Errorf("private postgres: port %d is not between 1 and 65535: use 0 for a free one", c.Port)
	case c.MaxConnections < 10:
		return fmt.Errorf("private postgres: %d connections are too few for one worker: allow at least 10", c.MaxConnections)
	case c.StartTimeout < 0:
		return fmt.Errorf("private postgres: start timeout %s is negative: use 0 for the default", c.StartTimeout)
	default:
		return nil
	}
}

// Postgres is a running private server.
//
// It listens on 127.0.0.1 and on a socket inside its own folder, and asks for a random password on
// both: every local user can reach a loopback port, and whoever is let in as superuser can run
// programs as the server's user, so "trust" would hand the machine's other users an account.
type Postgres struct {
	cfg      PostgresConfig
	layout   layout
	binDir   string
	owner    owner
	password string
	port     int
	lock     *folderlock.Lock
	proc     *childproc.Process
}

// StartPostgres starts a private Postgres, making its database at the first start. It returns once
// the server answers queries. The server ends with Stop, or when this process ends in any way.
func StartPostgres(ctx context.Context, cfg PostgresConfig) (*Postgres, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	p, err := preparePostgres(ctx, cfg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.StartTimeout,
		fmt.Errorf("private postgres did not start within %s", cfg.StartTimeout))
	defer cancel()
	if err := p.launch(ctx); err != nil {
		return nil, errors.Join(err, p.lock.Release())
	}
	return p, nil
}

// preparePostgres does everything up to the first start of the server, and takes the folder's lock.
func preparePostgres(ctx context.Context, cfg PostgresConfig) (*Postgres, error) {
	dir, err := filepath.Abs(cfg.DataDir)
	if err != nil {
		return nil, fmt.Errorf("resolve data folder: %w", err)
	}
	p := &Postgres{cfg: cfg, layout: layout(dir)}
	if p.binDir, err = findPostgres(ctx, cfg.BinDir, cfg.Log); err != nil {
		return nil, err
	}
	if p.owner, err = serverOwner(); err != nil {
		return nil, err
	}
	if err := p.owner.makeFolder(dir); err != nil {
		return nil, err
	}
	if p.lock, err = folderlock.Try(p.layout.lock()); err != nil {
		return nil, err
	}
	if err := p.prepareFolder(ctx); err != nil {
		return nil, errors.Join(err, p.lock.Release())
	}
	return p, nil
}

func (p *Postgres) prepareFolder(ctx context.Context) error {
	if err := p.layout.clearStalePid(ctx, p.cfg.Log); err != nil {
		return err
	}
	var err error
	if p.password, err = p.layout.loadPassword(p.owner); err != nil {
		return err
	}
	return p.initdb(ctx)
}

// launch starts the server, again on another port when somebody took the free one meanwhile, and again
// while sessions of a server that was killed have not noticed yet.
func (p *Postgres) launch(ctx context.Context) error {
	var err error
	giveUp := time.Now().Add(orphanPatience)
	for try := 1; try <= startTries; try++ {
		if p.port = p.cfg.Port; p.port == 0 {
			if p.port, err = childproc.FreePort(ctx); err != nil {
				return err
			}
		}
		if err = p.launchOnce(ctx); err == nil {
			return nil
		}
		if p.layout.logSays("pre-existing shared memory block") && time.Now().Before(giveUp) && pause(ctx) {
			try--
			continue
		}
		if p.cfg.Port != 0 || !p.layout.logSays("could not bind") {
			break
		}
	}
	return err
}

// pause waits a moment and reports whether ctx is alive.
func pause(ctx context.Context) bool {
	t := time.NewTimer(10 * readyPoll)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

func (p *Postgres) launchOnce(ctx context.Context) error {
	log, err := p.layout.openLog(p.owner)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the server has its own copy of the descriptor
	p.proc, err = childproc.Start(ctx, childproc.Config{
		Path:       filepath.Join(p.binDir, "postgres"),
		Args:       p.serverArgs(),
		Dir:        string(p.layout),
		Env:        p.environment(),
		Output:     log,
		Credential: p.owner.credential,
		// SIGQUIT is Postgres's "immediate" shutdown: it ends its own children too, and the next
		// start recovers from the log, as after any crash.
		DeathSignal: syscall.SIGQUIT,
	})
	if err != nil {
		return err
	}
	if err := p.waitReady(ctx); err != nil {
		// Nothing was served yet, so there is nothing worth a slow goodbye.
		return fmt.Errorf("start private postgres: %w%s", errors.Join(err, p.proc.Kill()), p.layout.logTail())
	}
	return nil
}

func (p *Postgres) serverArgs() []string {
	settings := p.settings()
	args := make([]string, 0, 4+2*len(settings))
	args = append(args, "-D", p.layout.database(), "-p", strconv.Itoa(p.port))
	for _, setting := range settings {
		args = append(args, "-c", setting)
	}
	return args
}

// environment is small on purpose: PGDATA, PGPORT and friends of the caller must not reach the server.
func (p *Postgres) environment() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + string(p.layout), "LC_ALL=C", "TZ=UTC"}
}

func (p *Postgres) waitReady(ctx context.Context) error {
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		err := p.ping(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.proc.Done():
			return fmt.Errorf("server ended: %w", p.proc.Err())
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

func (p *Postgres) ping(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, p.DSN("postgres"))
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// DSN is the connection string of a database on this server for its superuser; it contains the
// password. "postgres" always exists.
func (p *Postgres) DSN(database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(PostgresUser, p.password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// CreateDatabase makes a database unless there is one of that name already.
func (p *Postgres) CreateDatabase(ctx context.Context, name string) error {
	conn, err := pgx.Connect(ctx, p.DSN("postgres"))
	if err != nil {
		return fmt.Errorf("connect to private postgres: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var exists bool
	const query = "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)"
	if err := conn.QueryRow(ctx, query, name).Scan(&exists); err != nil {
		return fmt.Errorf("look for database %s: %w", name, err)
	}
	if exists {
		return nil
	}
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()); err != nil {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	return nil
}

// Port is the port on 127.0.0.1.
func (p *Postgres) Port() int { return p.port }

// Pid is the process id of the server, for those who want to kill it.
func (p *Postgres) Pid() int { return p.proc.Pid() }

// Done is closed when the server has ended, wanted or not.
func (p *Postgres) Done() <-chan struct{} { return p.proc.Done() }

// Stop ends the server: open sessions are broken off and the data is written out, until ctx ends; then
// it is killed, which loses no committed data. Safe to call more than once.
func (p *Postgres) Stop(ctx context.Context) error {
	err := p.proc.Stop(ctx, syscall.SIGINT) // "fast" shutdown
	if err != nil {
		err = fmt.Errorf("stop private postgres: %w", err)
	}
	return errors.Join(err, p.lock.Release())
}

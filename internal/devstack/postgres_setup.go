package devstack

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"
)

const (
	orphanPatience = time.Minute
	logTailBytes   = 2000
)

// layout names the files below a private Postgres's DataDir.
type layout string

func (l layout) database() string { return filepath.Join(string(l), "data") }
func (l layout) password() string { return filepath.Join(string(l), "password") }
func (l layout) log() string      { return filepath.Join(string(l), "postgres.log") }
func (l layout) lock() string     { return filepath.Join(string(l), "lock") }
func (l layout) pidFile() string  { return filepath.Join(l.database(), "postmaster.pid") }

// loadPassword returns the superuser's password, made at the first start.
func (l layout) loadPassword(o owner) (string, error) {
	raw, err := os.ReadFile(l.password())
	if err == nil && len(raw) > 0 {
		return strings.TrimSpace(string(raw)), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read password of private postgres: %w", err)
	}
	password := rand.Text()
	if err := os.WriteFile(l.password(), []byte(password+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("write password of private postgres: %w", err)
	}
	return password, o.take(l.password())
}

// openLog starts a new log file and keeps the one before it, so that neither grows for ever.
func (l layout) openLog(o owner) (*os.File, error) {
	if err := os.Rename(l.log(), l.log()+".1"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("rotate log of private postgres: %w", err)
	}
	f, err := os.OpenFile(l.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log of private postgres: %w", err)
	}
	return f, o.take(l.log())
}

func (l layout) logSays(words string) bool {
	raw, err := os.ReadFile(l.log())
	return err == nil && strings.Contains(string(raw), words)
}

// logTail is the end of the server's log, for an error message; empty when there is none.
func (l layout) logTail() string {
	raw, err := os.ReadFile(l.log())
	if err != nil || len(raw) == 0 {
		return ""
	}
	return "\n" + strings.TrimSpace(string(raw[max(0, len(raw)-logTailBytes):]))
}

// initdb makes the database at the first start: beside its place and then renamed, so that a start
// that was killed half-way leaves nothing that looks finished.
func (p *Postgres) initdb(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(p.layout.database(), "PG_VERSION")); err == nil {
		return p.checkVersion(ctx)
	}
	fresh := p.layout.database() + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return fmt.Errorf("clear half-made database: %w", err)
	}
	p.cfg.Log.Info().Str("folder", string(p.layout)).Msg("making a private postgres database")
	args := []string{
		"-D", fresh, "-U", PostgresUser, "-A", "scram-sha-256", "--pwfile", p.layout.password(),
		"-E", "UTF8", "--no-locale", "--no-instructions",
	}
	if p.cfg.Fast {
		args = append(args, "--no-sync")
	}
	cmd := exec.CommandContext(ctx, filepath.Join(p.binDir, "initdb"), args...)
	cmd.Dir = string(p.layout)
	cmd.Env = p.environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.owner.credential, Setpgid: true}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run initdb: %w\n%s", err, strings.TrimSpace(string(out)))
	}
	if err := os.Rename(fresh, p.layout.database()); err != nil {
		return fmt.Errorf("put new database in place: %w", err)
	}
	return nil
}

// checkVersion refuses a database of another major version in words of our own.
func (p *Postgres) checkVersion(ctx context.Context) error {
	raw, err := os.ReadFile(filepath.Join(p.layout.database(), "PG_VERSION"))
	if err != nil {
		return fmt.Errorf("read version of private database: %w", err)
	}
	have := strings.TrimSpace(string(raw))
	server, err := majorVersion(ctx, p.binDir)
	if err != nil {
		return err
	}
	if have != strconv.Itoa(server) {
		return fmt.Errorf("the data in %s was made by postgres %s, but %s is version %d: use another data folder or remove this one",
			p.layout, have, p.binDir, server)
	}
	return nil
}

// clearStalePid deals with what a killed predecessor left. The folder's lock is ours, so no living
// parent uses the server that the file names: it is shutting down, orphaned, or long gone. Postgres
// itself would refuse to start when the number now belongs to any other process.
func (l layout) clearStalePid(ctx context.Context, log zerolog.Logger) error {
	pid, ok := l.readPid()
	if !ok {
		return nil
	}
	if !l.isOurServer(ctx, pid) {
		log.Warn().Int("pid", pid).Msg("removing the pid file of a postgres that is gone")
		if err := os.Remove(l.pidFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove stale pid file: %w", err)
		}
		return nil
	}
	log.Warn().Int("pid", pid).Msg("waiting for the postgres of a parent that was killed")
	_ = syscall.Kill(pid, syscall.SIGQUIT) // usually on its way out already
	ctx, cancel := context.WithTimeout(ctx, orphanPatience)
	defer cancel()
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for l.isOurServer(ctx, pid) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("an orphaned postgres (pid %d) still uses %s: stop it, then start again", pid, l)
		case <-tick.C:
		}
	}
	return nil
}

func (l layout) readPid() (int, bool) {
	raw, err := os.ReadFile(l.pidFile())
	if err != nil {
		return 0, false
	}
	first, _, _ := strings.Cut(string(raw), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	return pid, err == nil && pid > 1
}

// isOurServer tells whether the process is a postgres on this very folder.
func (l layout) isOurServer(ctx context.Context, pid int) bool {
	line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil { // no /proc (macOS), or no such process
		line, err = exec.CommandContext(ctx, "ps", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	}
	return err == nil && strings.Contains(string(line), "postgres") && strings.Contains(string(line), l.database())
}

// settings are the command-line settings of the server, sorted.
func (p *Postgres) settings() []string {
	all := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"unix_socket_directories": p.layout.socketFolder(),
		"max_connections":         strconv.Itoa(p.cfg.MaxConnections),
		"shared_buffers":          p.cfg.SharedBuffers,
		"max_wal_size":            "2GB",
		"fsync":                   "on",
		"synchronous_commit":      "on",
		"full_page_writes":        "on",
		"timezone":                "UTC",
		"log_timezone":            "UTC",
	}
	if p.cfg.Fast {
		maps.Copy(all, map[string]string{"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"})
	}
	maps.Copy(all, p.cfg.Settings)
	list := make([]string, 0, len(all))
	for _, key := range slices.Sorted(maps.Keys(all)) {
		list = append(list, key+"="+all[key])
	}
	return list
}

// socketFolder is our own folder, or none where its path is too long for a socket.
func (l layout) socketFolder() string {
	if len(l) > maxSocketFolder {
		return ""
	}
	return string(l)
}

package devstack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/rs/zerolog"
)

// oldestPostgres is the oldest major version whose SQL we use.
const oldestPostgres = 15

var postgresVersion = regexp.MustCompile(`PostgreSQL\) (\d+)`)

// findPostgres returns a folder with initdb and postgres of a version we can use: the given one, the
// one on PATH, the newest in the usual places of Debian and Homebrew, or one fetched for us.
func findPostgres(ctx context.Context, given string, log zerolog.Logger) (string, error) {
	if given != "" {
		version, err := majorVersion(ctx, given)
		if err == nil && version < oldestPostgres {
			err = fmt.Errorf("postgres in %s is version %d: use %d or newer", given, version, oldestPostgres)
		}
		return given, err
	}
	if dir, ok := pathFolder(); ok {
		if version, err := majorVersion(ctx, dir); err == nil && version >= oldestPostgres {
			return dir, nil
		}
	}
	if dir := newestOf(ctx, usualFolders()); dir != "" {
		return dir, nil
	}
	return fetchPostgres(ctx, log)
}

// pathFolder is the folder of the initdb on PATH, links followed: a server finds its own files beside
// the real one.
func pathFolder() (string, bool) {
	initdb, err := exec.LookPath("initdb")
	if err != nil {
		return "", false
	}
	if target, err := filepath.EvalSymlinks(initdb); err == nil {
		initdb = target
	}
	return filepath.Dir(initdb), true
}

func usualFolders() []string {
	var found []string
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",
		"/usr/pgsql-*/bin",
		"/opt/homebrew/opt/postgresql@*/bin",
		"/usr/local/opt/postgresql@*/bin",
		"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
	} {
		dirs, err := filepath.Glob(pattern)
		if err == nil {
			found = append(found, dirs...)
		}
	}
	return found
}

func newestOf(ctx context.Context, dirs []string) string {
	newest, best := "", oldestPostgres-1
	for _, dir := range dirs {
		if version, err := majorVersion(ctx, dir); err == nil && version > best {
			newest, best = dir, version
		}
	}
	return newest
}

// majorVersion asks the server in a folder for its version; both programs must be there.
func majorVersion(ctx context.Context, dir string) (int, error) {
	if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil {
		return 0, fmt.Errorf("find initdb: %w", err)
	}
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return 0, fmt.Errorf("ask postgres in %s for its version: %w", dir, err)
	}
	match := postgresVersion.FindSubmatch(out)
	if match == nil {
		return 0, errors.New("unreadable answer of postgres --version: " + string(out))
	}
	return strconv.Atoi(string(match[1]))
}

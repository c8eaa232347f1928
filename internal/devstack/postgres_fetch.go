package devstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
	"github.com/rs/zerolog"

	"github.com/settleonce/settleonce/internal/childproc"
	"github.com/settleonce/settleonce/internal/folderlock"
)

// The version we fetch where no Postgres is installed.
const (
	fetchVersion = embeddedpostgres.V17
	fetchMajor   = "17"
)

// fetchPostgres downloads a Postgres into a cache and returns its folder of programs.
//
// The library only fetches here. It would also run the server, but not as root, and it wipes its
// runtime folder at each start, in which the data lies by default.
func fetchPostgres(ctx context.Context, log zerolog.Logger) (string, error) {
	cache, err := cacheFolder()
	if err != nil {
		return "", err
	}
	target := filepath.Join(cache, "postgres-"+fetchMajor)
	binDir := filepath.Join(target, "bin")
	if _, err := majorVersion(ctx, binDir); err == nil {
		return binDir, nil
	}
	lock, err := folderlock.Wait(ctx, target+".lock")
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Release() }()
	if _, err := majorVersion(ctx, binDir); err == nil {
		return binDir, nil // somebody else fetched it while we waited
	}
	log.Warn().Str("version", fetchMajor).Str("folder", target).
		Msg("no postgres found on PATH or in the usual places: fetching one (about 10 MB, once)")
	if err := fetchInto(ctx, target); err != nil {
		return "", fmt.Errorf("fetch postgres (or install one, for example Debian's package postgresql): %w", err)
	}
	log.Info().Str("folder", target).Msg("fetched postgres")
	return binDir, nil
}

// fetchInto unpacks beside the target and renames, so that a fetch that was killed leaves nothing that
// looks finished.
func fetchInto(ctx context.Context, target string) error {
	work, err := os.MkdirTemp(filepath.Dir(target), filepath.Base(target)+".new-")
	if err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	unpacked := filepath.Join(work, "postgres")
	if err := download(ctx, work, unpacked); err != nil {
		return err
	}
	if _, err := majorVersion(ctx, filepath.Join(unpacked, "bin")); err != nil {
		return err
	}
	//nolint:gosec // The server's unprivileged user has to read programs and libraries.
	if err := os.Chmod(unpacked, 0o755); err != nil {
		return fmt.Errorf("open folder to the server's user: %w", err)
	}
	if err := os.RemoveAll(target); err != nil {
		return fmt.Errorf("remove broken fetch: %w", err)
	}
	if err := os.Rename(unpacked, target); err != nil {
		return fmt.Errorf("put fetched postgres in place: %w", err)
	}
	return nil
}

// download makes the library fetch and unpack, and stops it before it runs anything of use: the data
// folder pretends to be of this version, so there is no initdb, and the server finds nothing in it.
// That refusal, and no other error, means that the programs are there.
func download(ctx context.Context, work, unpacked string) error {
	data := filepath.Join(work, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	if err := os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte(fetchMajor+"\n"), 0o600); err != nil {
		return fmt.Errorf("write version file: %w", err)
	}
	port, err := childproc.FreePort(ctx)
	if err != nil {
		return err
	}
	//nolint:gosec // A port fits.
	library := embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().
		Version(fetchVersion).Port(uint32(port)).Logger(io.Discard).StartTimeout(time.Second).
		CachePath(filepath.Join(work, "archive")).RuntimePath(filepath.Join(work, "runtime")).
		BinariesPath(unpacked).DataPath(data))
	result := make(chan error, 1)
	go func() { result <- library.Start() }() // it takes no context; a cancelled start leaves it behind
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case err = <-result:
	}
	http.DefaultClient.CloseIdleConnections() // it fetched with that one
	switch {
	case err == nil:
		return errors.Join(errors.New("postgres started on an empty folder"), library.Stop())
	case strings.Contains(err.Error(), "could not start postgres"):
		return nil
	default:
		return err
	}
}

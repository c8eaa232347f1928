package devstack

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

// TestFetchedPostgresRuns covers the machine on which no Postgres is installed. It downloads at the
// first run on a machine, so it is asked for (CI does).
func TestFetchedPostgresRuns(t *testing.T) {
	t.Parallel()
	if os.Getenv("SETTLEONCE_TEST_FETCH") == "" {
		t.Skip("set SETTLEONCE_TEST_FETCH=1 to download a Postgres")
	}
	bin, err := fetchPostgres(t.Context(), zerolog.New(zerolog.NewTestWriter(t)))
	require.NoError(t, err)
	again, err := fetchPostgres(t.Context(), zerolog.Nop())
	require.NoError(t, err)
	require.Equal(t, bin, again, "the second call finds what the first fetched")

	dir, err := TempDir("settleonce-devstack-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	pg, err := StartPostgres(t.Context(), PostgresConfig{DataDir: filepath.Join(dir, "pg"), BinDir: bin, Fast: true})
	require.NoError(t, err)
	require.NoError(t, pg.CreateDatabase(t.Context(), "shop"))
	require.NoError(t, pg.Stop(context.WithoutCancel(t.Context())))
}

func TestNewestOfTakesOnlyWhatRuns(t *testing.T) {
	t.Parallel()
	old, recent, broken := fakePostgres(t, "9.6.24"), fakePostgres(t, "17.2"), t.TempDir()
	require.Equal(t, recent, newestOf(t.Context(), []string{broken, old, recent}))
	require.Empty(t, newestOf(t.Context(), []string{old}), "too old for our SQL")

	_, err := findPostgres(t.Context(), old, zerolog.Nop())
	require.ErrorContains(t, err, "use 15 or newer")
}

// fakePostgres is a folder whose programs only tell their version.
func fakePostgres(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	script := []byte("#!/bin/sh\necho 'postgres (PostgreSQL) " + version + "'\n")
	for _, name := range []string{"initdb", "postgres"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), script, 0o700))
	}
	return dir
}

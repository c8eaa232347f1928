package schemas

import (
	"context"
	"io/fs"
	"time"
)

// Files are the embedded migrations.
func Files() (fs.FS, error) { return embedded() }

// MigrateFiles applies other files than the embedded ones, with waits for tests.
func MigrateFiles(ctx context.Context, dsn string, files fs.FS, lockTimeout time.Duration, tries int) ([]Migration, error) {
	o := online{lockTimeout: lockTimeout, pause: 20 * time.Millisecond, longestPause: 50 * time.Millisecond, tries: tries}
	return migrate(ctx, dsn, files, o.withDefaults())
}

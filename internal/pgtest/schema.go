package pgtest

import (
	"context"

	"github.com/settleonce/settleonce/schemas"
)

// Schema is the Migrate of most tests: settleonce's own schema, with every migration applied.
func Schema(ctx context.Context, dsn string) error {
	_, err := schemas.Migrate(ctx, dsn)
	return err
}

package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Operator is who does something by hand, and why. Both are required.
type Operator struct {
	Actor, Reason string
}

// Validate reports what is missing.
func (o Operator) Validate() error {
	if o.Actor == "" || o.Reason == "" {
		return errors.New("say who does it and why: --actor NAME --reason TEXT")
	}
	return nil
}

// audit writes down who did what, why, and to what, in the transaction in which it
// is done.
func audit(ctx context.Context, tx pgx.Tx, actor, action, reason string, detail any) error {
	encoded, err := json.Marshal(detail)
	if err != nil {
		return fmt.Errorf("write the detail: %w", err)
	}
	_, err = tx.Exec(ctx, `INSERT INTO settleonce.audit (actor, action, reason, detail) VALUES ($1, $2, $3, $4)`,
		clean(actor), action, clean(reason), string(encoded))
	return err
}

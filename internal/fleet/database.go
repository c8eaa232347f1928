package fleet

import (
	"context"
	"fmt"
	"net/url"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// CreateDatabase makes a database beside the fleet's own, for a service beside the
// workers, and a role of the same name that owns it. It returns the address, which
// holds a password.
func (f *Fleet) CreateDatabase(ctx context.Context, name string) (*url.URL, error) {
	address, err := url.Parse(f.dsn)
	if err != nil {
		return nil, fmt.Errorf("make the database %s: %w", name, err)
	}
	conn, err := pgx.Connect(ctx, f.dsn)
	if err != nil {
		return nil, fmt.Errorf("make the database %s: %w", name, err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	password := uuid.NewString()
	for _, sql := range []string{"CREATE ROLE " + name + " LOGIN PASSWORD '" + password + "'", "CREATE DATABASE " + name + " OWNER " + name} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return nil, fmt.Errorf("make the database %s: %w", name, err)
		}
	}
	address.User, address.Path = url.UserPassword(name, password), "/"+name
	return address, nil
}

package callers

import (
	"context"
	"errors"
	"time"

	"github.com/settleonce/settleonce/producer/edge"
)

// Edge is the Directory as the HTTP edge asks it.
type Edge struct {
	directory *Directory
}

var _ edge.Callers = Edge{}

// NewEdge returns the edge's view of the directory.
func NewEdge(d *Directory) Edge { return Edge{directory: d} }

// Authenticate returns the caller that a bearer token belongs to, or
// edge.ErrUnknownCredential.
func (e Edge) Authenticate(ctx context.Context, bearer string) (edge.Caller, error) {
	c, credential, err := e.directory.Authenticate(ctx, bearer)
	switch {
	case errors.Is(err, ErrUnknownKey):
		return edge.Caller{}, edge.ErrUnknownCredential
	case err != nil:
		return edge.Caller{}, err
	}
	return edge.Caller{
		Name: c.Name, Namespace: c.Namespace, Credential: credential, RequireIssuedAt: c.RequireIssuedAt, GraceUntil: c.GraceUntil,
	}, nil
}

// Allow takes one request from the caller's rate limit, as the table has it now.
func (e Edge) Allow(caller edge.Caller) (bool, time.Duration) {
	c, ok := e.directory.Find(caller.Name)
	if !ok {
		return true, 0 // authenticated a moment ago, and gone since: the next request is refused
	}
	return e.directory.Allow(c)
}

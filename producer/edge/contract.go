package edge

import (
	"context"
	"errors"
	"time"
)

// Caller is whom a credential belongs to.
type Caller struct {
	// Name is the caller of every command that comes with the credential (G12).
	Name string
	// Namespace is that of the caller's obligations; empty means Name.
	Namespace string
	// RequireIssuedAt refuses the caller's payments without the time of the intent.
	RequireIssuedAt bool
	// GraceUntil is until when the edge makes up a key that is missing; zero for
	// never. Each request without a key is a payment of its own.
	GraceUntil time.Time
	// Credential names the credential in logs, where a caller has several. It is
	// never the secret or a part of it. Defaults to none.
	Credential string
}

// Callers knows who may use the edge.
type Callers interface {
	// Authenticate returns the caller that a bearer token belongs to. The error is
	// ErrUnknownCredential when it belongs to nobody (any more); any other error
	// means that it could not be found out, which is answered 503.
	Authenticate(ctx context.Context, bearer string) (Caller, error)
	// Allow takes one request from the caller's rate limit. Where there is none
	// left it returns false, and when to try again.
	Allow(caller Caller) (ok bool, retryAfter time.Duration)
}

// ErrUnknownCredential says that a credential is nobody's, or was revoked.
var ErrUnknownCredential = errors.New("credential is not known")

package payment

import (
	"errors"
	"time"

	"github.com/google/uuid"
)

// SuccessTolerance is how much later than the latest success of its obligation
// a command must have been issued to count as made after it (G15): clocks of
// callers and of the database may differ by this much.
const SuccessTolerance = 2 * time.Second

// Ground is what stands on an obligation when a command for it is claimed or
// permitted: read after the hold row was won, in a later statement (G15).
type Ground struct {
	// Holder is the unresolved payment that owns the hold, if any.
	Holder *uuid.UUID
	// OpenConflict is a payment with an open conflict that carries success
	// evidence, or an open imported review, on this obligation, if any.
	OpenConflict *uuid.UUID
	// LatestSuccess is the payment that succeeded last, if any, and SuccessAt when.
	LatestSuccess *uuid.UUID
	SuccessAt     time.Time
	// RepayNamed says the namespace is set to "repay: named": once there is a
	// success, only a command whose follows names the latest one is charged.
	RepayNamed bool
}

// Verdict judges a payment for this obligation: "" means it may go on; else the
// code of the rejection and the payment that blocks it. The payment's own hold
// does not block it; its own success or open conflict does.
func (g Ground) Verdict(self uuid.UUID, issuedAt time.Time, follows *uuid.UUID) (Code, *uuid.UUID) {
	switch {
	case g.Holder != nil && *g.Holder != self:
		return CodePriorAttemptUnresolved, g.Holder
	case g.OpenConflict != nil:
		return CodePriorAttemptUnresolved, g.OpenConflict
	case g.LatestSuccess == nil:
		return "", nil
	case *g.LatestSuccess == self:
		return CodeObligationAlreadyPaid, g.LatestSuccess
	case follows != nil && *follows == *g.LatestSuccess:
		return "", nil
	case !g.RepayNamed && issuedAt.After(g.SuccessAt.Add(SuccessTolerance)):
		return "", nil
	default:
		return CodeObligationAlreadyPaid, g.LatestSuccess
	}
}

// Freshness judges the age of commands and says how long keys are kept (G14).
type Freshness struct {
	// Window is the age past which an unknown key is stale. It must not be
	// shorter than the retention of the command topic. Defaults to 14 days.
	Window time.Duration
	// Skew is how far issuedAt may lie in the future. Defaults to 5 minutes.
	Skew time.Duration
}

// keyMargin is added to a key's life so that cleaning and judging cannot meet.
const keyMargin = time.Hour

// WithDefaults returns a copy with every unset field set.
func (f Freshness) WithDefaults() Freshness {
	if f.Window == 0 {
		f.Window = 14 * 24 * time.Hour
	}
	if f.Skew == 0 {
		f.Skew = 5 * time.Minute
	}
	return f
}

// Validate reports the first setting that must be changed.
func (f Freshness) Validate() error {
	switch {
	case f.Window <= 0:
		return errors.New("set the command window to a positive duration, for instance 336h")
	case f.Skew <= 0:
		return errors.New("set the clock skew to a positive duration, for instance 5m")
	case f.Skew >= f.Window:
		return errors.New("set the clock skew below the command window")
	default:
		return nil
	}
}

// Judge compares the time of the intent with the database's clock: "" for a
// fresh command, CodeStaleCommand past the window, CodeInvalidCommand when it
// was issued in the future by more than the skew. Only an unknown key is judged.
func (f Freshness) Judge(issuedAt, now time.Time) Code {
	switch {
	case issuedAt.After(now.Add(f.Skew)):
		return CodeInvalidCommand
	case issuedAt.Before(now.Add(-f.Window)):
		return CodeStaleCommand
	default:
		return ""
	}
}

// KeepUntil is the earliest moment a key may be forgotten: no copy of a command
// delivered under it can then still be judged fresh. A time that does not apply
// is the zero time.
func (f Freshness) KeepUntil(claimed, ended, latestIssued time.Time) time.Time {
	latest := claimed
	for _, t := range [...]time.Time{ended, latestIssued} {
		if t.After(latest) {
			latest = t
		}
	}
	return latest.Add(f.Window + f.Skew + keyMargin)
}

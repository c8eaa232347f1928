package store

import (
	"github.com/rs/zerolog"

	"github.com/settleonce/settleonce/payment"
)

// One line per transition. Content is never logged: no token, no amount.

func (s *Store) logClaims(run *claimRun) {
	for i := range run.outcomes {
		o := &run.outcomes[i]
		event := s.log.Debug()
		if o.Verdict == Rejected || o.Verdict == DeadLettered {
			event = s.log.Info()
		}
		a := &run.arrivals[i]
		event = event.Str("verdict", o.Verdict.String()).Str("topic", a.Origin.Topic).
			Int("partition", a.Origin.Partition).Int64("offset", a.Origin.Offset)
		if a.Dead != nil {
			event.Str("reason", string(a.Dead.Reason)).Str("error", payment.Mask(a.Dead.Error)).Msg("dead letter")
			continue
		}
		event = event.Stringer("key", a.Identity.Key).Str("caller", a.Identity.Caller)
		known(event, "code", string(o.Code)).Msg("claim")
	}
}

func (s *Store) logChanges(round []int, out []Applied) {
	for _, i := range round {
		a := &out[i]
		if a.Change == nil || a.Change.Quiet {
			continue
		}
		event := s.log.Info().Stringer("key", a.After.Identity.Key).Str("caller", a.After.Identity.Caller).
			Int("attempt", a.After.Attempt).Int("send", a.After.Sends).Stringer("state", a.After.State).Str("actor", a.Change.Actor)
		known(event, "request", a.Change.RequestHash)
		known(event, "reference", a.After.ProviderReference)
		known(event, "cause", payment.Mask(a.Change.Cause)).Msg("transition")
	}
}

// known adds a field that has a value: an empty one would look like a fault.
func known(event *zerolog.Event, name, value string) *zerolog.Event {
	if value == "" {
		return event
	}
	return event.Str(name, value)
}

package store

import (
	"github.com/rs/zerolog"

	"github.com/settleonce/settleonce/payment"
)

// One line per transition. Content is never logged: no token, no amount.

func (s *Store) logClaims(run *claimRun) {
	for i := range run.outcomes {
		o, a := &run.outcomes[i], &run.arrivals[i]
		level := zerolog.DebugLevel
		if o.Verdict == Rejected || o.Verdict == DeadLettered {
			level = zerolog.InfoLevel
		}
		if level < s.log.GetLevel() {
			continue
		}
		log := s.log.With().Str("verdict", o.Verdict.String()).Str("topic", a.Origin.Topic).
			Int("partition", a.Origin.Partition).Int64("offset", a.Origin.Offset).Logger()
		if a.Dead != nil {
			log.WithLevel(level).Str("reason", string(a.Dead.Reason)).Str("error", payment.Mask(a.Dead.Error)).Msg("dead letter")
			continue
		}
		log.WithLevel(level).Stringer("key", a.Identity.Key).Str("caller", a.Identity.Caller).Func(known("code", string(o.Code))).Msg("claim")
	}
}

func (s *Store) logChanges(round []int, out []Applied) {
	for _, i := range round {
		a := &out[i]
		if a.Change == nil || a.Change.Quiet {
			continue
		}
		s.log.Info().Stringer("key", a.After.Identity.Key).Str("caller", a.After.Identity.Caller).
			Int("attempt", a.After.Attempt).Int("send", a.After.Sends).Func(known("request", a.Change.RequestHash)).
			Func(known("reference", a.After.ProviderReference)).Stringer("state", a.After.State).
			Func(known("cause", payment.Mask(a.Change.Cause))).Str("actor", a.Change.Actor).Msg("transition")
	}
}

// known adds a field that has a value: an empty one would look like a fault.
func known(name, value string) func(*zerolog.Event) {
	return func(event *zerolog.Event) {
		if value != "" {
			event.Str(name, value)
		}
	}
}

package store

import (
	"github.com/rs/zerolog"

	"github.com/settleonce/settleonce/internal/tracing"
	"github.com/settleonce/settleonce/payment"
)

// One line per transition. Content is never logged: no token, no amount.

func (s *Store) logClaims(run *claimRun) {
	for i := range run.outcomes {
		o, a := &run.outcomes[i], &run.arrivals[i]
		if o.Payment != nil {
			s.logTransition(o.Payment, &Change{Actor: "consumer"}, a.Trace)
			continue
		}
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
		log.WithLevel(level).Stringer("key", a.Identity.Key).Str("caller", a.Identity.Caller).Func(known("code", string(o.Code))).
			Func(known("trace_id", tracing.ID(a.Trace))).Msg("claim")
	}
}

func (s *Store) logChanges(steps []Step, round []int, out []Applied) {
	for _, i := range round {
		a := &out[i]
		if a.Change == nil || a.Change.Quiet {
			continue
		}
		s.logTransition(&a.After, a.Change, steps[i].Trace)
	}
}

func (s *Store) logTransition(p *Payment, c *Change, trace string) {
	event := s.log.Info()
	if !event.Enabled() {
		return
	}
	event.Stringer("key", p.Identity.Key).Str("caller", p.Identity.Caller).
		Int("attempt", p.Attempt).Int("send", p.Sends).Func(known("request", c.RequestHash)).
		Func(known("reference", p.ProviderReference)).Stringer("state", p.State).
		Func(known("cause", payment.Mask(c.Cause))).Str("actor", c.Actor).Func(known("trace_id", tracing.ID(trace))).Msg("transition")
}

// known adds a field that has a value: an empty one would look like a fault.
func known(name, value string) func(*zerolog.Event) {
	return func(event *zerolog.Event) {
		if value != "" {
			event.Str(name, value)
		}
	}
}

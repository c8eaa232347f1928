package demo

import (
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/settleonce/settleonce/internal/check"
	"github.com/settleonce/settleonce/internal/fleet"
)

// Channel is one of the channels of a demo.
type Channel struct {
	fleet.Channel

	// AnyReview says that it cannot always be asked or sent to again, so that every
	// payment may end in review.
	AnyReview bool
	// CallsBack says that it sends callbacks, where there are gateways to take them.
	CallsBack bool
	// Lots are payments of its own. A channel with some has no others.
	Lots []Lot
}

// Behaviour is the one of a simulator, as JSON, with further fields.
func Behaviour(more string) string {
	if more != "" {
		more = "," + more
	}
	return fmt.Sprintf(`{"latency":%q,"longestExecution":"5s"%s}`, latency, more)
}

// Promises are what workers are told of a provider at its best, with changes; an
// empty one leaves a promise out.
func Promises(changes map[string]string) map[string]string {
	all := map[string]string{
		"idempotent-submit": "true", "key-memory": "24h", "pins-failures": "true", "query": "true", "visibility-lag": "immediate",
		"query-reach": "forever", "not-found-is-proof": "true", "longest-execution": "5s", "throttle-not-applied": "true",
		"submit-timeout": "2s", "query-timeout": "2s",
	}
	maps.Copy(all, changes)
	maps.DeleteFunc(all, func(_, value string) bool { return value == "" })
	return all
}

// limits are the requests per second that workers are told channels take.
func limits(channels []Channel) map[string]float64 {
	out := map[string]float64{}
	for i := range channels {
		if limit, err := strconv.ParseFloat(channels[i].Promises["rate-limit"], 64); err == nil && limit > 0 {
			out[channels[i].Name] = limit
		}
	}
	return out
}

// lookups are the channels that workers are told they can ask.
func lookups(channels []Channel) []string {
	var out []string
	for i := range channels {
		if channels[i].Promises["query"] == "true" {
			out = append(out, channels[i].Name)
		}
	}
	return out
}

const (
	// stranger may not publish.
	stranger = "mallory"
	// market and its jobs pay for the same obligations; in their namespace a paid one
	// is paid again only by a command that names the payment before it.
	market, jobs = "market", "jobs"
	repayNamed   = "market"
)

// callers may publish.
var callers = []string{"shop", "billing", market, jobs}

// namespaces are those of the callers' obligations.
var namespaces = map[string]string{"shop": "shop", "billing": "billing", market: repayNamed, jobs: repayNamed}

// knownRules are what is known of every demo.
func knownRules() check.Rules {
	return check.Rules{
		Share: queryShare, Floor: queryFloor,
		Window: 14 * 24 * time.Hour, Skew: 5 * time.Minute,
	}
}

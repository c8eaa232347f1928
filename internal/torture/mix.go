package torture

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/settleonce/settleonce/internal/demo"
	"github.com/settleonce/settleonce/internal/fleet"
)

// mix is what a channel can do, as the simulator behaves and as the workers are
// told.
type mix struct {
	// name is what commands call the channel, about says it in words.
	name, about string
	// behaviour is added to the simulator's, as JSON without braces.
	behaviour string
	// promises are changed in what the workers are told.
	promises map[string]string
	// review says that what was perhaps sent may have to wait for a person.
	review bool
}

const notIdempotent = `"idempotentSubmit":false,"pinsFailures":false`

// no is a promise that is not given.
const no = "false"

var (
	noProof  = map[string]string{"not-found-is-proof": no}
	sendOnce = map[string]string{"idempotent-submit": no, "key-memory": "", "pins-failures": no}
	noLookup = map[string]string{"query": no, "visibility-lag": "", "query-reach": "", "not-found-is-proof": no}
)

// mixes are the capabilities that decide how the unknown is resolved.
var mixes = []mix{
	{"full", "idempotent, failures pinned, lookup at once", `"idempotentSubmit":true`, nil, false},
	{"unpinned", "failures not pinned", `"pinsFailures":false`, map[string]string{"pins-failures": no}, false},
	{"lagging", "lookup lags by a second", `"visibilityLag":"1s"`, map[string]string{"visibility-lag": "1s"}, false},
	{"no-proof", "not found is no proof", `"notFoundIsProof":false`, noProof, true},
	{"send-once", "not idempotent, with lookup", notIdempotent, sendOnce, true},
	{
		"vague", "failures not pinned, lookup lags, not found is no proof", `"pinsFailures":false,"visibilityLag":"700ms","notFoundIsProof":false`,
		map[string]string{"pins-failures": no, "visibility-lag": "700ms", "not-found-is-proof": no},
		true,
	},
	{"no-lookup", "idempotent, without lookup", `"query":false,"notFoundIsProof":false`, noLookup, true},
	{"blind", "neither idempotent nor lookup", notIdempotent + `,"query":false,"notFoundIsProof":false`, merged(sendOnce, noLookup), true},
}

func merged(some ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, m := range some {
		maps.Copy(all, m)
	}
	return all
}

const fewestChannels = 3

// mixesOf are the channels of a run: three to eight, no two of a kind. Eight seeds
// in a row have every mix in the first place.
func mixesOf(seed uint64) []mix {
	random := rand.New(rand.NewPCG(seed, 8))
	all := slices.Clone(mixes)
	first := int(seed % uint64(len(all))) //nolint:gosec // less than eight
	all[0], all[first] = all[first], all[0]
	random.Shuffle(len(all)-1, func(i, j int) { all[i+1], all[j+1] = all[j+1], all[i+1] })
	return all[:fewestChannels+random.IntN(len(all)-fewestChannels+1)]
}

// channelsOf makes channels of mixes.
func channelsOf(of []mix) []demo.Channel {
	var out []demo.Channel
	for _, m := range of {
		out = append(out, demo.Channel{
			Channel:   fleet.Channel{Name: m.name, Behaviour: demo.Behaviour(m.behaviour), Promises: demo.Promises(m.promises)},
			AnyReview: m.review,
		})
	}
	return out
}

// aboutMixes says in words what each channel of a run can do.
func aboutMixes(of []mix) []ChannelMix {
	var out []ChannelMix
	for _, m := range of {
		out = append(out, ChannelMix{Name: m.name, About: m.about})
	}
	return out
}

// ChannelMix is a channel of a run, and what it can do.
type ChannelMix struct {
	Name  string `json:"name"`
	About string `json:"about"`
}

func (m ChannelMix) String() string { return fmt.Sprintf("%s (%s)", m.Name, m.About) }

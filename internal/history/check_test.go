package history_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/history"
	"github.com/settleonce/settleonce/payment"
)

// told is one finished call of a sequential history; at the same time as the
// next one when together is set.
type told struct {
	in       history.Input
	out      history.Output
	together bool
	rerun    bool
}

func deliver(content string, answer history.Answer) told {
	return told{in: history.Input{Kind: history.Deliver, Key: "k", Content: content}, out: history.Output{Answer: answer}}
}

func replayed(content string, state payment.State, code payment.Code) told {
	t := deliver(content, history.Replayed)
	t.out.State, t.out.Code = state, code
	return t
}

func rejected() told {
	t := deliver("a", history.Rejected)
	t.out.Code = prior
	return t
}

func settled(to payment.State, reference string, answer history.Answer) told {
	return told{in: history.Input{Kind: history.Settle, Key: "k", To: to, Reference: reference}, out: history.Output{Answer: answer}}
}

func found(state payment.State, reference string) told {
	return told{in: history.Input{Kind: history.Look, Key: "k"}, out: history.Output{Answer: history.Found, State: state, Reference: reference}}
}

func missing() told {
	return told{in: history.Input{Kind: history.Look, Key: "k"}, out: history.Output{Answer: history.Missing}}
}

func (t told) concurrent() told { t.together = true; return t }

// twice is a call whose COMMIT may have been answered by nobody.
func (t told) twice() told { t.rerun = true; return t }

// record plays a history; calls that are together end in the order they began.
func record(calls []told) *history.Recorder {
	var r history.Recorder
	var open []func()
	for i, c := range calls {
		call := r.Begin(i, c.in)
		if c.rerun {
			call.MayHaveRunTwice()
		}
		open = append(open, func() { call.End(c.out) })
		if !c.together {
			for _, end := range open {
				end()
			}
			open = nil
		}
	}
	for _, end := range open {
		end()
	}
	return &r
}

const (
	prior = payment.CodePriorAttemptUnresolved
	stale = payment.CodeStaleCommand
)

// Histories that the contract allows.
var sound = map[string][]told{
	"claimed, repeated, settled, replayed": {
		missing(), deliver("a", history.Claimed), found(payment.Pending, ""), deliver("a", history.Pending), deliver("b", history.Conflict),
		settled(payment.Unknown, "", history.Applied), settled(payment.Unknown, "", history.Refused), settled(payment.Succeeded, "r1", history.Applied),
		settled(payment.Declined, "r2", history.Refused), replayed("a", payment.Succeeded, ""), deliver("b", history.Conflict), found(payment.Succeeded, "r1"),
	},
	"the second of two at once is the fresh one": {deliver("a", history.Pending).concurrent(), deliver("a", history.Claimed)},
	"rejected stays rejected":                    {rejected(), replayed("a", payment.Rejected, prior), settled(payment.Succeeded, "", history.Refused)},
	"an unseen delivery claimed":                 {deliver("a", history.Unseen), deliver("a", history.Pending)},
	"an unseen delivery never came":              {deliver("a", history.Unseen), missing(), deliver("a", history.Claimed)},
	"an unseen delivery came late":               {deliver("a", history.Unseen), missing(), deliver("a", history.Pending)},
	"an unseen delivery was rejected":            {deliver("a", history.Unseen), replayed("a", payment.Rejected, stale), replayed("a", payment.Rejected, stale)},
	"an unseen delivery of other content":        {deliver("b", history.Unseen), deliver("a", history.Conflict), deliver("b", history.Pending)},
	"an unseen settlement":                       {deliver("a", history.Claimed), settled(payment.Declined, "", history.Unseen), deliver("a", history.Pending), replayed("a", payment.Declined, "")},
	"two answers at once, one wins": {
		deliver("a", history.Claimed), settled(payment.Declined, "r2", history.Refused).concurrent(),
		settled(payment.Succeeded, "r1", history.Applied), replayed("a", payment.Succeeded, ""),
	},
	"run twice, a repeat of itself":        {deliver("a", history.Pending).twice(), deliver("a", history.Pending)},
	"run twice, settled in between":        {replayed("a", payment.Succeeded, "").twice().concurrent(), settled(payment.Succeeded, "r1", history.Applied), found(payment.Succeeded, "r1")},
	"run twice, claimed after all":         {deliver("a", history.Claimed).twice(), deliver("a", history.Pending)},
	"run twice, refused both times":        {rejected().twice(), replayed("a", payment.Rejected, prior)},
	"run twice, in conflict with a winner": {deliver("b", history.Conflict).twice().concurrent(), deliver("a", history.Claimed)},
	"settled twice by one call":            {deliver("a", history.Claimed), settled(payment.Declined, "r1", history.Refused).twice(), found(payment.Declined, "r1")},
	"nothing to settle":                    {settled(payment.Succeeded, "", history.Missing)},
}

// Each breaks one rule; a checker that does not find it proves nothing.
var planted = map[string][]told{
	"claimed twice":                          {deliver("a", history.Claimed), deliver("a", history.Claimed)},
	"claimed twice at once":                  {deliver("a", history.Claimed).concurrent(), deliver("a", history.Claimed)},
	"claimed beside an unseen one":           {deliver("a", history.Unseen), deliver("a", history.Claimed), deliver("a", history.Claimed)},
	"claimed after the outcome":              {deliver("a", history.Claimed), settled(payment.Declined, "", history.Applied), deliver("a", history.Claimed)},
	"pending of nothing":                     {deliver("a", history.Pending)},
	"pending after the outcome":              {deliver("a", history.Claimed), settled(payment.Succeeded, "", history.Applied), deliver("a", history.Pending)},
	"replayed before there is an outcome":    {deliver("a", history.Claimed), replayed("a", payment.Succeeded, "")},
	"another outcome than the first":         {deliver("a", history.Claimed), settled(payment.Succeeded, "", history.Applied), replayed("a", payment.Declined, "")},
	"outcome overwritten":                    {deliver("a", history.Claimed), settled(payment.Declined, "", history.Applied), settled(payment.Succeeded, "", history.Applied)},
	"outcome overwritten by equal evidence":  {deliver("a", history.Claimed), settled(payment.Succeeded, "r1", history.Applied), settled(payment.Succeeded, "r2", history.Applied)},
	"paid flipped back":                      {deliver("a", history.Claimed), settled(payment.Succeeded, "", history.Applied), found(payment.Pending, "")},
	"unknown after the outcome":              {deliver("a", history.Claimed), settled(payment.Succeeded, "", history.Applied), settled(payment.Unknown, "", history.Applied)},
	"evidence of nobody":                     {deliver("a", history.Claimed), settled(payment.Succeeded, "r1", history.Applied), found(payment.Succeeded, "r2")},
	"evidence refused while open":            {deliver("a", history.Claimed), settled(payment.Succeeded, "", history.Refused)},
	"told rejected, charged on redelivery":   {rejected(), deliver("a", history.Claimed)},
	"told rejected, pending on redelivery":   {rejected(), deliver("a", history.Pending)},
	"rejected under another code":            {rejected(), replayed("a", payment.Rejected, stale)},
	"two codes for an unseen rejection":      {deliver("a", history.Unseen), replayed("a", payment.Rejected, stale), replayed("a", payment.Rejected, prior)},
	"rejected after it was claimed":          {deliver("a", history.Claimed), rejected()},
	"conflict missed":                        {deliver("a", history.Claimed), deliver("b", history.Pending)},
	"conflict missed after the outcome":      {deliver("a", history.Claimed), settled(payment.Declined, "", history.Applied), replayed("b", payment.Declined, "")},
	"conflict with itself":                   {deliver("a", history.Claimed), deliver("a", history.Conflict)},
	"forgotten":                              {deliver("a", history.Claimed), missing()},
	"settled without a claim":                {settled(payment.Succeeded, "", history.Applied)},
	"run twice, and claimed by another":      {deliver("a", history.Claimed).twice(), deliver("a", history.Claimed)},
	"run twice, and pending after the end":   {deliver("a", history.Claimed), settled(payment.Declined, "", history.Applied), deliver("a", history.Pending).twice()},
	"run twice, and refused by nobody":       {deliver("a", history.Claimed), rejected().twice()},
	"run twice, and in conflict with itself": {deliver("a", history.Conflict).twice()},
	"settled twice, refused and not done":    {deliver("a", history.Claimed), settled(payment.Declined, "r1", history.Refused).twice(), found(payment.Pending, "")},
	"settled twice, over an outcome":         {deliver("a", history.Claimed), settled(payment.Succeeded, "r1", history.Applied), settled(payment.Declined, "r2", history.Applied).twice()},
	"rejected anew under another call":       {rejected().twice(), rejected()},
	"an unseen settlement taken back": {
		deliver("a", history.Claimed), settled(payment.Declined, "", history.Unseen), replayed("a", payment.Declined, ""), deliver("a", history.Pending),
	},
}

func TestSoundHistories(t *testing.T) {
	t.Parallel()
	for name, calls := range sound {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, record(calls).Check(time.Minute).Err())
		})
	}
}

func TestPlantedViolationsAreFound(t *testing.T) {
	t.Parallel()
	for name, calls := range planted {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := record(calls).Check(time.Minute)
			require.Len(t, report.Broken, 1)
			require.ErrorContains(t, report.Err(), "no sequential explanation")
		})
	}
}

// A violation in one key is found among many sound ones.
func TestKeysAreCheckedApart(t *testing.T) {
	t.Parallel()
	var r history.Recorder
	for i := range 50 {
		key := strconv.Itoa(i)
		r.Begin(0, history.Input{Kind: history.Deliver, Key: key, Content: "a"}).End(history.Output{Answer: history.Claimed})
		if i == 7 {
			r.Begin(0, history.Input{Kind: history.Look, Key: key}).End(history.Output{Answer: history.Missing})
		}
	}
	report := r.Check(time.Minute)
	require.Equal(t, 50, report.Keys)
	require.Equal(t, 51, report.Calls)
	require.Len(t, report.Broken, 1)
	require.Contains(t, report.Broken[0], "key 7:")
}

func TestNothingCheckedIsNoProof(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, new(history.Recorder).Check(time.Minute).Err(), "empty")
	require.ErrorContains(t, history.Report{Keys: 1, Undecided: []string{"k"}}.Err(), "not decided")
}

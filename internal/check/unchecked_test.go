package check

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/payment"
)

// whyUnseen is what the verdict says about something it did not look at.
func whyUnseen(t *testing.T, v Verdict, guarantee, what string) string {
	t.Helper()
	for _, u := range v.Unchecked {
		if u.Guarantee == guarantee && u.What == what {
			return u.Why
		}
	}
	require.Failf(t, "not said", "%s %s in %v", guarantee, what, v.Unchecked)
	return ""
}

// What was not looked at is said, with the reason, and is no violation.
func TestVerdict_SaysWhatItDidNotSee(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.charged(w.command())
	w.evidence.Ledger = nil
	w.evidence.Load = sim.Load{}
	rules := w.rules()
	rules.Blind = map[string]string{"sim": "it shows no ledger"}
	v := Judge(w.file(), rules)
	require.Empty(t, v.Violations)
	require.Equal(t, "it shows no ledger", whyUnseen(t, v, "G3", "1 payments of the channel sim against its ledger"))
	require.Contains(t, whyUnseen(t, v, "G13", "the query budget of the channel sim"), "no")
	require.Contains(t, whyUnseen(t, v, "G7", "the tables"), "no database")
	require.Contains(t, whyUnseen(t, v, "G16", "commands of an aborted transaction"), "publisher")
	rules.Incomplete = true
	require.Contains(t, whyUnseen(t, Judge(w.file(), rules), "G6", "messages and charges that no command asked for"), "gone")
}

// Without a budget, or a channel that tells since when it counts, nothing is said
// to be within it.
func TestVerdict_KnowsNoBudget(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.charged(w.command())
	w.evidence.Queries = 100_000
	rules := w.rules()
	rules.Floor = 0
	require.Contains(t, whyUnseen(t, Judge(w.file(), rules), "G13", "the query budget of the channel sim"), "not known")
	w.evidence.Load = sim.Load{}
	require.Contains(t, whyUnseen(t, w.judge(), "G13", "the query budget of the channel sim"), "since when")
	w.evidence.Load = sim.Load{
		Since: w.now.Add(-5 * time.Hour), Seconds: []sim.LoadSecond{{At: w.now.Unix() - 60, Queries: 1}},
	}
	require.Contains(t, whyUnseen(t, w.judge(), "G13", "the peaks of queries at the channel sim"), "remembers")
}

// Callbacks make us ask at once: then nobody can say that it was too early.
func TestVerdict_PromptedChannelsAreAskedAnyTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	channelPlants["G13 asked before the first re-query was due"](w)
	require.NotEmpty(t, w.judge().Violations)
	rules := w.rules()
	rules.Prompted = map[string]string{"sim": "its callbacks make us ask at once"}
	v := Judge(w.file(), rules)
	require.Empty(t, v.Violations)
	require.Contains(t, whyUnseen(t, v, "G13", "whether the channel sim was asked before a re-query was due"), "callbacks")
}

// A channel that was started again does not know the submits before: they are not
// missed in what it allows.
func TestVerdict_ChannelStartedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.charged(w.command())
	w.evidence.Load = sim.Load{Since: w.now.Add(time.Second), Seconds: []sim.LoadSecond{{At: w.now.Unix() + 1, Queries: 900}}}
	w.now = w.now.Add(2 * time.Minute)
	w.evidence.Queries = 900
	require.Empty(t, w.judge().Violations)
}

// An unreadable record that has just come may be on its way to the dead letters.
func TestVerdict_FreshRecordsAreUnderWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.raw()
	rules := w.rules()
	rules.Running = lately(r.Time.Add(-time.Second))
	require.Empty(t, Judge(w.file(), rules).Violations)
	rules.Running = lately(r.Time.Add(time.Second))
	require.NotEmpty(t, Judge(w.file(), rules).Violations)
}

// Evidence is filed as it comes, and judged again as more comes: replies may be
// read before the commands that they answer.
func TestEvidence_GrowsBetweenJudgements(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.command()
	_, e := w.charged(c)
	w.answer(w.deliver(c), c, payment.ReplyReplayed, withOutcome(e))
	evidence := NewEvidence()
	for i := range w.evidence.Replies {
		evidence.AddReply(&w.evidence.Replies[i])
	}
	require.Empty(t, Outstanding(evidence, Rules{}))
	evidence.AddCommand(&w.evidence.Commands[0])
	require.Len(t, Outstanding(evidence, Rules{}), 1)
	evidence.AddEvent(&w.evidence.Events[0])
	require.Empty(t, Outstanding(evidence, Rules{}))
	evidence.AddCommand(&w.evidence.Commands[1])
	require.Empty(t, Outstanding(evidence, Rules{}))
	evidence.Ledgers = []Ledger{{Channel: "sim", Charges: w.evidence.Ledger}}
	require.Empty(t, Judge(evidence, Rules{}).Violations)
}

// Second keys that are in order: refused while the first is unresolved, and a
// payment of their own when they name it or were issued later.
func TestVerdict_SecondKeysThatAreAllowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.command()
	w.charged(first)
	named := w.secondKey(first, names(first))
	w.charged(named)
	w.now = w.now.Add(time.Minute)
	w.charged(w.secondKey(first, issuedNow(w)))
	market := w.command(func(c *payment.Command) { c.Caller = "market" })
	w.charged(market)
	w.charged(w.secondKey(market, func(c *payment.Command) { c.Caller = "jobs" }, names(market)))
	part := w.command(func(c *payment.Command) { c.Obligation = "part-1" })
	w.charged(part)
	w.charged(w.secondKey(part, func(c *payment.Command) { c.Obligation = "part-2" }))
	waiting := w.command()
	r := w.deliver(waiting)
	w.refuse(w.secondKey(waiting), payment.CodePriorAttemptUnresolved, waiting)
	w.answer(r, waiting, payment.ReplyRejected, withCode(payment.CodeChannelUnavailable, nil, false))
	w.tell(waiting, payment.EventRejected, payment.Rejected) // claimed, never sent
	v := w.judge()
	require.Empty(t, v.Violations)
	require.Equal(t, 4, v.Counts.Obligations)
	require.Equal(t, 2, v.Counts.PaidTwice)
}

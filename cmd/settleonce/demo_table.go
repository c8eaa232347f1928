package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/settleonce/settleonce/internal/check"
	"github.com/settleonce/settleonce/internal/demo"
)

func demoTable(t *table, r demo.Report) {
	c := r.Counts
	count := func(name string, n int, about string, args ...any) {
		t.row("  "+name, fmt.Sprintf("%6d", n), fmt.Sprintf(about, args...))
	}
	t.row("")
	t.row("COMMANDS", "", fmt.Sprintf("payment.commands on the %s broker, seed %d", r.Broker, r.Seed))
	count("published", c.Records, "within %.0f s; %d more in an aborted transaction", r.PublishSeconds, c.Aborted)
	count("unique keys", c.Keys, "%d of them payments to claim; the others are second keys of orders, or nonsense", r.Payments)
	t.row("CHANNEL", "", "its own ledger, which nobody of ours writes")
	count("charges", c.Charges, "%d submits arrived, %d queries (budget: %s)", c.ChannelAsked, c.Queries, r.QueryBudget)
	count("keys charged twice", c.DoubleCharged, "")
	count("orders charged", c.Obligations, "%d of them again, on purpose", c.PaidTwice)
	if len(c.Channels) > 1 {
		channelRows(t, c.Channels)
	}
	t.row("OUTCOMES", "", "payment.events")
	count("succeeded", c.Succeeded, "each settled once in the ledger")
	count("declined", c.Declined, "none settled in the ledger")
	count("rejected", c.Rejected, "none ever sent to the channel")
	count("in review", c.InReview, "a person decides; %d were scripted never to get an answer", c.ReviewPlanned)
	if c.Unended > 0 {
		count("without an end", c.Unended, "")
	}
	count("unknown for a while", c.Unknown, "resolved after the 1 s query %d, 4 s %d, 16 s %d, without %d",
		c.Resolved.First, c.Resolved.Second, c.Resolved.Third, c.Resolved.Without)
	t.row("ANSWERS", "", "payment.replies and payment.deadletter")
	count("duplicates answered", c.Repeats, "%d while the first was pending, the others with its outcome", c.Pending)
	count("conflicts refused", c.Conflicts, "same key, other amount")
	count("second keys refused", c.SecondUnresolved+c.SecondPaid, "order unresolved %d, already paid %d", c.SecondUnresolved, c.SecondPaid)
	count("paid again on purpose", c.PaidAgain, "the second command names the first payment")
	count("other rejections", c.OtherRejections, "invalid, stale, from the future, unknown channel")
	count("dead letters", c.DeadLetters, "unreadable, stale, in a foreign name; bytes unchanged")
	edgeRows(t, r, count)
	if c.Forged > 0 {
		count("not let in", c.Forged+c.ShutOut+c.Posed, "%d commands were forged, %d came after their caller was shut out, %d requests showed a key that is none",
			c.Forged, c.ShutOut, c.Posed)
	}
	t.row("KILLED", fmt.Sprintf("%6d", sum(r.Killed)), killedText(r))
	t.row("TIME", fmt.Sprintf("%4.0f s", r.Seconds), fmt.Sprintf("settled %.0f s after the last command", r.SettleSeconds))
	t.row("")
	verdictTable(t, r)
}

// edgeRows say what came over HTTP, where anything did.
func edgeRows(t *table, r demo.Report, count func(name string, n int, about string, args ...any)) {
	c := &r.Counts
	if c.Told > 0 {
		var parts []string
		for _, status := range slices.Sorted(maps.Keys(r.Requests)) {
			parts = append(parts, fmt.Sprintf("%s %d", status, r.Requests[status]))
		}
		t.row("EDGE", "", "HTTP; requests by status: "+strings.Join(parts, ", "))
		count("answers", c.Told, "held against events and replies")
		count("callbacks taken", c.Callbacks, "%d more were refused", c.CallbacksRefused)
	}
	if c.Replays > 0 {
		count("replayed on purpose", c.Replays, "events and replies, by an operator")
	}
	if d := c.Downstream; d != nil {
		t.row("DOWNSTREAM", "", "a service with an inbox, and a database of its own")
		count("events applied", d.Applied, "to %d payments", d.Payments)
		count("repeats skipped", d.Repeats, "in the topic; crashes and resets had others delivered again")
	}
}

func channelRows(t *table, channels []check.ChannelCounts) {
	for _, c := range channels {
		t.row("  · "+c.Channel, fmt.Sprintf("%6d", c.Charges), fmt.Sprintf("charges, %d payments, %d submits, %d queries; %d were unknown, %d are in review",
			c.Payments, c.Asked, c.Queries, c.Unknown, c.InReview))
	}
}

// sum adds counts up.
func sum(counts map[string]int) int {
	n := 0
	for _, c := range counts {
		n += c
	}
	return n
}

func killedText(r demo.Report) string {
	var parts []string
	for role, n := range r.Killed {
		parts = append(parts, fmt.Sprintf("%s %d", role, n))
	}
	slices.Sort(parts)
	text := strings.Join(parts, ", ")
	if len(parts) > 0 {
		text += "; SIGKILL, and started again"
	}
	if len(r.Crashed) > 0 {
		text += "; ended by themselves: " + strings.Join(r.Crashed, ", ")
	}
	return text
}

// verdictTable ends the table with what held and what did not.
func verdictTable(t *table, r demo.Report) {
	guaranteeRows(t, r.Verdict)
	if len(r.Unsettled) > 0 {
		t.row("STILL AWAITED", fmt.Sprintf("%6d", len(r.Unsettled)), strings.Join(r.Unsettled[:min(len(r.Unsettled), 3)], "; "))
	}
	if r.Passed() {
		t.row("VERDICT", "", "every guarantee held")
		return
	}
	t.row("VERDICT", "", "FAILED; again with --seed "+strconv.FormatUint(r.Seed, 10))
}

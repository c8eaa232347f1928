package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/settleonce/settleonce/internal/demo"
)

func demoTable(t *table, r demo.Report) {
	c := r.Counts
	t.row("")
	t.row("COMMANDS", "", "topic payment.commands, "+r.Broker+" broker, seed "+fmt.Sprint(r.Seed))
	t.row("  published", c.Records, fmt.Sprintf("in %.0f s; unique keys %d", r.PublishSeconds, c.Keys))
	t.row("CHANNEL", "", "its own ledger")
	t.row("  charges", c.Charges, fmt.Sprintf("%d submits, %d queries (budget: %s)", c.ChannelAsked, c.Queries, r.QueryBudget))
	t.row("  keys charged twice", c.DoubleCharged, mark(c.DoubleCharged == 0))
	t.row("OUTCOMES", "", "topic payment.events")
	t.row("  succeeded", c.Succeeded, mark(c.Succeeded <= c.Charges)+" each settled once in the ledger")
	t.row("  declined", c.Declined, "  none settled")
	t.row("  rejected", c.Rejected, "  never sent to the channel")
	t.row("  still in review", c.InReview, fmt.Sprintf("  a person decides; %d are scripted never to be answered", c.ReviewPlanned))
	if c.Unended > 0 {
		t.row("  without an end", c.Unended, mark(false))
	}
	t.row("  unknown for a while", c.Unknown, fmt.Sprintf("resolved by tier 1 s: %d, 4 s: %d, 16 s: %d", c.Resolved[1], c.Resolved[2], c.Resolved[3]))
	t.row("ANSWERS", "", "topics payment.replies and payment.deadletter")
	t.row("  duplicates answered", c.Repeats, fmt.Sprintf("%d of them while the first was pending", c.Pending))
	t.row("  conflicts refused", c.Conflicts, "same key, other amount")
	t.row("  second keys refused", c.SecondUnresolved+c.SecondPaid, fmt.Sprintf("order unresolved %d, order paid %d; paid again on purpose %d", c.SecondUnresolved, c.SecondPaid, c.PaidAgain))
	t.row("  otherwise rejected", c.OtherRejections, "invalid, stale, unknown channel")
	t.row("  dead letters", c.DeadLetters, "bytes unchanged")
	t.row("KILLED", sum(r.Killed), killedText(r))
	t.row("TIME", fmt.Sprintf("%.0f s", r.Seconds), fmt.Sprintf("settled %.0f s after the last command", r.SettleSeconds))
	t.row("")
	verdictTable(t, r)
}

func verdictTable(t *table, r demo.Report) {
	t.row("GUARANTEE", "", "", "CHECKED AT")
	for _, h := range r.Guarantees {
		t.row(h.Guarantee, mark(h.Violations == 0), h.Name, fmt.Sprintf("%d %s", h.Checked, h.Of))
	}
	t.row("")
	for i, v := range r.Violations[:min(len(r.Violations), fewCommands)] {
		if i == 0 {
			t.row("BROKEN")
		}
		t.row("  "+v.Guarantee, v.Key, v.Text)
	}
	if more := len(r.Violations) - fewCommands; more > 0 {
		t.row(fmt.Sprintf("  and %d more; -o json shows all", more))
	}
	for i, u := range r.Unsettled[:min(len(r.Unsettled), fewCommands)] {
		if i == 0 {
			t.row(fmt.Sprintf("STILL AWAITED (%d)", len(r.Unsettled)))
		}
		t.row("  " + u)
	}
	if r.Passed() {
		t.row("VERDICT", "every guarantee held")
	} else {
		t.row("VERDICT", "FAILED")
	}
}

func mark(ok bool) string {
	if ok {
		return "✓"
	}
	return "✗"
}

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
	if len(r.Crashed) > 0 {
		text += "; ended by themselves: " + strings.Join(r.Crashed, ", ")
	}
	return text
}

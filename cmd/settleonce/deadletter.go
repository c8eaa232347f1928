package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/internal/deadletter"
	"github.com/settleonce/settleonce/internal/store"
)

func newDeadLetter(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use: "deadletter", Short: "List, show, send again or discard dead letters", GroupID: sectionOperators, Args: cobra.NoArgs,
		Example: "  settleonce deadletter list --dl-reason stale --since 24h\n" +
			"  settleonce deadletter show 3-1042\n" +
			"  settleonce deadletter redrive 3-1042 --execute --actor ada --reason INC-42\n" +
			"  settleonce deadletter discard 3-1042 --execute --actor ada --reason 'test traffic'",
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newDeadLetterList(p), newDeadLetterShow(p), newDeadLetterRedrive(p), newDeadLetterDiscard(p))
	return cmd
}

// letterFilter are the flags that choose letters.
type letterFilter struct {
	reason, topic, since, until, state string
	all                                bool
}

func (f *letterFilter) offer(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.reason, "dl-reason", "", "only those that died for this reason, such as stale")
	flags.StringVar(&f.topic, "topic", "", "only those that came from this topic, without topic-prefix")
	flags.StringVar(&f.since, "since", "", "only those written since: a time like 2026-11-30T10:00:00Z, or an age like 2h")
	flags.StringVar(&f.until, "until", "", "only those written before, as for --since")
}

func (f *letterFilter) read(o *operator, args []string) (deadletter.Filter, error) {
	out := deadletter.Filter{Reason: f.reason, State: f.state, Any: f.all}
	if f.topic != "" {
		out.Topic = o.cfg.Topics.Prefix + f.topic
	}
	var err error
	now := time.Now()
	if out.Since, err = pointInTime("--since", f.since, now); err != nil {
		return out, err
	}
	if out.Until, err = pointInTime("--until", f.until, now); err != nil {
		return out, err
	}
	for _, text := range args {
		id, err := deadletter.ParseID(text)
		if err != nil {
			return out, err
		}
		out.IDs = append(out.IDs, id)
	}
	return out, out.Validate()
}

// letters runs a sub-command over the dead letters.
func letters(cmd *cobra.Command, p process, f *letterFilter, args []string, do func(*deadletter.Desk, *deadletter.Filter) error) error {
	if _, err := wantsJSON(cmd); err != nil {
		return err
	}
	return withOperator(cmd, p, "deadletter", func(o *operator) error {
		filter, err := f.read(o, args)
		if err != nil {
			return asUsage(err)
		}
		desk := deadletter.New(deadletter.Config{
			Kafka: o.kafka, Store: o.store, Topic: o.topics.DeadLetter, Commands: o.cfg.Callers.CommandTopics(o.cfg.Topics.Prefix),
		})
		return do(desk, &filter)
	})
}

func offerLetters(cmd *cobra.Command) {
	offerOutput(cmd)
	offer(cmd, config.GroupKafka, config.GroupPostgres)
	offerOne(cmd, "topic-prefix")
	offerOne(cmd, "command-topics")
}

func newDeadLetterList(p process) *cobra.Command {
	var f letterFilter
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List dead letters, those that nobody has dealt with by default", Args: cobra.NoArgs,
		Example: "  settleonce deadletter list\n  settleonce deadletter list --dl-reason foreign_caller --topic payment.commands --since 24h\n" +
			"  settleonce deadletter list --state redriven -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return letters(cmd, p, &f, nil, func(desk *deadletter.Desk, filter *deadletter.Filter) error {
				found := letterList{Letters: []*deadletter.Letter{}, Reasons: map[string]int{}}
				err := desk.Each(cmd.Context(), filter, func(l *deadletter.Letter) error {
					found.add(l, limit)
					return nil
				})
				if err != nil {
					return explainKafka(err)
				}
				return show(cmd, found, letterTable)
			})
		},
	}
	f.offer(cmd)
	cmd.Flags().StringVar(&f.state, "state", deadletter.StateOpen, "open, redriving, redriven or discarded")
	cmd.Flags().BoolVar(&f.all, "all", false, "those in every state")
	cmd.Flags().IntVar(&limit, "limit", 200, "show so many, the latest of each partition; all are counted")
	offerLetters(cmd)
	return cmd
}

// letterList is what -o json prints.
type letterList struct {
	Letters []*deadletter.Letter `json:"letters"`
	// Reasons counts all that were found, also those that are not shown.
	Reasons map[string]int `json:"reasons"`
}

func (l *letterList) add(letter *deadletter.Letter, limit int) {
	l.Reasons[letter.Reason]++
	l.Letters = append(l.Letters, letter)
	if over := len(l.Letters) - limit; over > 0 {
		l.Letters = slices.Delete(l.Letters, 0, over)
	}
}

func letterTable(t *table, l letterList) {
	if len(l.Letters) == 0 {
		t.row("no dead letter matches")
		return
	}
	t.row("ID", "TIME", "REASON", "FROM", "KEY", "STATE", "ERROR")
	for _, d := range l.Letters {
		t.row(d.ID.String(), d.At.UTC().Format(time.RFC3339), d.Reason, fmt.Sprintf("%s/%d@%d", d.Topic, d.Partition, d.Offset), d.Key, d.State, d.Error)
	}
	for _, reason := range slices.Sorted(maps.Keys(l.Reasons)) {
		t.row("", "", reason, strconv.Itoa(l.Reasons[reason])+" in all")
	}
}

func newDeadLetterShow(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show one dead letter with its bytes", Args: cobra.ExactArgs(1),
		Example: "  settleonce deadletter show 3-1042\n  settleonce deadletter show 3-1042 -o json | jq -r .value",
		RunE: func(cmd *cobra.Command, args []string) error {
			return letters(cmd, p, &letterFilter{all: true}, args, func(desk *deadletter.Desk, filter *deadletter.Filter) error {
				var found shownLetter
				err := desk.Each(cmd.Context(), filter, func(l *deadletter.Letter) error {
					found = shownLetter{Letter: l, Headers: l.Headers(), Value: string(l.Value())}
					if !utf8.Valid(l.Value()) {
						found.Value, found.Base64 = base64.StdEncoding.EncodeToString(l.Value()), true
					}
					return nil
				})
				if err != nil {
					return explainKafka(err)
				}
				return show(cmd, found, shownTable)
			})
		},
	}
	offerLetters(cmd)
	return cmd
}

// shownLetter is what -o json prints.
type shownLetter struct {
	*deadletter.Letter

	Headers map[string]string `json:"headers"`
	// Value is the record's, as text where it is text.
	Value  string `json:"value"`
	Base64 bool   `json:"base64,omitempty"`
}

func shownTable(t *table, l shownLetter) {
	t.row("id", l.ID.String())
	t.row("reason", l.Reason, l.Error)
	t.row("from", fmt.Sprintf("%s partition %d offset %d, %s", l.Topic, l.Partition, l.Offset, l.At.UTC().Format(time.RFC3339Nano)))
	if l.Consumer != "" {
		t.row("given up by", l.Consumer)
	}
	t.row("key", strconv.Quote(l.Key))
	for _, name := range slices.Sorted(maps.Keys(l.Headers)) {
		t.row("header", name, strconv.Quote(l.Headers[name]))
	}
	t.row("state", l.State)
	if l.Done != nil {
		t.row("", fmt.Sprintf("by %s at %s: %s", l.By, l.Done.UTC().Format(time.RFC3339), l.Why))
	}
	if l.Base64 {
		t.row("value", "not text, in base64:")
	}
	t.row("value", l.Value)
}

// redriveFlags are the flags of `settleonce deadletter redrive`.
type redriveFlags struct {
	letterFilter

	execute  bool
	matching bool
	trust    bool
	rate     float64
	value    string
	by       store.Operator
}

func newDeadLetterRedrive(p process) *cobra.Command {
	var f redriveFlags
	cmd := &cobra.Command{
		Use: "redrive [ID…]", Short: "Send dead letters into their topics again",
		Example: "  settleonce deadletter redrive 3-1042                                    what would be sent\n" +
			"  settleonce deadletter redrive 3-1042 4-7 --execute --actor ada --reason INC-42\n" +
			"  settleonce deadletter redrive --matching --dl-reason handler_failed --since 24h --execute …\n" +
			"  settleonce deadletter redrive 3-1042 --value corrected.json --execute …",
		Long: "A letter is sent once: a second redrive of it is refused. With --value the body of a command is replaced; its key and\n" +
			"issuedAt must stay, and the original is kept beside the new one.",
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, p, args) },
	}
	f.offer(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&f.matching, "matching", false, "all letters that the filters choose, instead of those named")
	flags.BoolVar(&f.trust, "trust-removed", false, "send also facts whose topic no longer has them; commands never")
	flags.Float64Var(&f.rate, "rate", 50, "letters per second, at most; 0: no limit")
	flags.StringVar(&f.value, "value", "", "file with the body to send instead, - for standard input; for one command")
	offerAct(cmd, &f.execute, &f.by)
	offerLetters(cmd)
	return cmd
}

// redriven is what -o json prints.
type redriven struct {
	deadletter.Redriven

	// Would is how many letters would be sent, in a dry run.
	Would int  `json:"would"`
	Done  bool `json:"done"`
}

func (f *redriveFlags) run(cmd *cobra.Command, p process, args []string) error {
	switch {
	case len(args) == 0 && !f.matching:
		return asUsage(errors.New("name the letters, as `settleonce deadletter list` shows them, or say --matching with filters"))
	case len(args) > 0 && f.matching:
		return asUsage(errors.New("name letters or say --matching, not both"))
	case f.value != "" && len(args) != 1:
		return asUsage(errors.New("--value replaces the body of one letter: name exactly one"))
	case f.execute:
		if err := f.by.Validate(); err != nil {
			return asUsage(err)
		}
	}
	return letters(cmd, p, &f.letterFilter, args, func(desk *deadletter.Desk, filter *deadletter.Filter) error {
		done, err := f.redrive(cmd, p, desk, filter)
		if err != nil {
			return explainKafka(err)
		}
		return show(cmd, done, redrivenTable)
	})
}

func (f *redriveFlags) redrive(cmd *cobra.Command, p process, desk *deadletter.Desk, filter *deadletter.Filter) (done redriven, err error) {
	var body []byte
	if f.value != "" {
		if body, err = readBody(p, f.value); err != nil {
			return done, asUsage(err)
		}
	}
	if len(filter.IDs) > 0 {
		filter.Any = true // one that was dealt with is refused by name, not left out in silence
	}
	if !f.execute {
		err = desk.Each(cmd.Context(), filter, func(l *deadletter.Letter) error {
			done.Would++
			if body != nil {
				return desk.CheckEdit(l, body)
			}
			return nil
		})
		return done, err
	}
	done.Done = true
	if f.trust {
		desk.TrustRemoved()
	}
	if body != nil {
		done.Sent = 1
		return done, desk.RedriveEdited(cmd.Context(), filter.IDs[0], body, f.by)
	}
	done.Redriven, err = desk.Redrive(cmd.Context(), filter, f.by, f.rate)
	if err == nil && done.Sent == 0 && done.Before > 0 {
		err = fmt.Errorf("nothing was sent: %d were dealt with before, see `settleonce deadletter show`", done.Before)
	}
	return done, err
}

func redrivenTable(t *table, r redriven) {
	if !r.Done {
		t.row("would be sent again", strconv.Itoa(r.Would))
		t.row("next", nothingChanged)
		return
	}
	t.row("sent again", strconv.Itoa(r.Sent))
	if r.Before > 0 {
		t.row("dealt with before", strconv.Itoa(r.Before))
	}
}

func readBody(p process, name string) ([]byte, error) {
	const most = 1 << 20
	in := p.stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("open the new body: %w", err)
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	body, err := io.ReadAll(io.LimitReader(in, most))
	if err != nil {
		return nil, fmt.Errorf("read the new body: %w", err)
	}
	if len(strings.TrimSpace(string(body))) == 0 {
		return nil, errors.New("the new body is empty")
	}
	return body, nil
}

func newDeadLetterDiscard(p process) *cobra.Command {
	var by store.Operator
	var execute bool
	cmd := &cobra.Command{
		Use: "discard ID…", Short: "Note that nothing will be done about dead letters", Args: cobra.MinimumNArgs(1),
		Example: "  settleonce deadletter discard 3-1042 --execute --actor ada --reason 'test traffic'",
		Long:    "The record stays in the dead-letter topic for as long as that keeps it; it is no longer listed as open.",
	}
	offerAct(cmd, &execute, &by)
	offerLetters(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if execute {
			if err := by.Validate(); err != nil {
				return asUsage(err)
			}
		}
		return letters(cmd, p, &letterFilter{all: true}, args, func(desk *deadletter.Desk, filter *deadletter.Filter) error {
			return discard(cmd, desk, filter, execute, by)
		})
	}
	return cmd
}

// discarded is what -o json prints.
type discarded struct {
	Letters []deadletter.ID `json:"letters"`
	Done    bool            `json:"done"`
}

func discard(cmd *cobra.Command, desk *deadletter.Desk, filter *deadletter.Filter, execute bool, by store.Operator) error {
	done := discarded{Letters: filter.IDs, Done: execute}
	if execute {
		for _, id := range filter.IDs {
			if err := desk.Discard(cmd.Context(), id, by); err != nil {
				return explainKafka(err)
			}
		}
	}
	return show(cmd, done, func(t *table, d discarded) {
		if d.Done {
			t.row("discarded", strconv.Itoa(len(d.Letters)))
			return
		}
		t.row("would be discarded", strconv.Itoa(len(d.Letters)))
		t.row("next", nothingChanged)
	})
}

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/internal/replay"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// replayFlags are the flags of `settleonce replay` that are no settings.
type replayFlags struct {
	topic, since, until, key, caller, order string
	offsets                                 []string
	group, resume                           string
	rate                                    float64
	execute                                 bool
	by                                      store.Operator
}

func newReplay(p process) *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use: "replay", Short: "Bring records of a topic to their readers once more", GroupID: sectionOperators,
		Example: "  settleonce replay --topic payment.commands --since 2h                          what would happen\n" +
			"  settleonce replay --topic payment.commands --since 2h --execute --actor ada --reason INC-42\n" +
			"  settleonce replay --topic payment.commands --order order-1001 --caller shop --execute …\n" +
			"  settleonce replay --topic payment.commands --offsets 3:1040-1050 --execute …\n" +
			"  settleonce replay --topic payment.events --group shop-orders --since 2h --execute …\n" +
			"  settleonce replay --resume 0b9e6f0e-… --execute                                go on with a stopped one",
		Long: "Publishes the chosen records again into their own topic, unchanged, with a header that names the replay; or, with\n" +
			"--group, sets the offsets of a stopped consumer group back. Without --execute nothing is changed: the answer says what\n" +
			"each command would be told. A known key is never charged again, and an inbox drops what it has applied; a reader of\n" +
			"events that has no inbox sees old events behind newer ones: set its group back instead. Ctrl-C stops a replay; it can\n" +
			"be gone on with.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd, p) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.topic, "topic", "", "topic to read, without topic-prefix")
	flags.StringVar(&f.since, "since", "", "first record by its timestamp: a time like 2026-11-30T10:00:00Z, or an age like 2h")
	flags.StringVar(&f.until, "until", "", "end, not included, as for --since")
	flags.StringArrayVar(&f.offsets, "offsets", nil, "part of a partition, PARTITION:FROM-TO, TO not included; may be repeated")
	flags.StringVar(&f.key, "key", "", "only records with this key")
	flags.StringVar(&f.caller, "caller", "", "only this caller's")
	flags.StringVar(&f.order, "order", "", "only this order's")
	flags.StringVar(&f.group, "group", "", "set this consumer group back instead of publishing; its members must be stopped")
	flags.Float64Var(&f.rate, "rate", 500, "records published per second, at most; 0: no limit")
	flags.StringVar(&f.resume, "resume", "", "id of a stopped replay to go on with")
	offerAct(cmd, &f.execute, &f.by)
	offerOutput(cmd)
	offer(cmd, config.GroupKafka, config.GroupPostgres)
	for _, name := range []string{"topic-prefix", "command-topics", "window", "skew"} {
		offerOne(cmd, name)
	}
	return cmd
}

// nothingChanged is the next step after a dry run.
const nothingChanged = "nothing was changed; to do it, add: --execute --actor NAME --reason TEXT"

// offerAct gives a command the flags of tools that change something.
func offerAct(cmd *cobra.Command, execute *bool, by *store.Operator) {
	flags := cmd.Flags()
	flags.BoolVar(execute, "execute", false, "do it; without it nothing is changed")
	flags.StringVar(&by.Actor, "actor", "", "who does it, for the audit")
	flags.StringVar(&by.Reason, "reason", "", "why, for the audit")
}

func (f *replayFlags) run(cmd *cobra.Command, p process) error {
	if _, err := wantsJSON(cmd); err != nil {
		return err
	}
	if f.execute && f.resume == "" {
		if err := f.by.Validate(); err != nil {
			return asUsage(err)
		}
	}
	return withOperator(cmd, p, "replay", func(o *operator) error {
		player := replay.New(replay.Config{
			Kafka: o.kafka, Store: o.store, Commands: o.cfg.Callers.CommandTopics(o.cfg.Topics.Prefix),
			Freshness: payment.Freshness{Window: o.cfg.Consumer.Window, Skew: o.cfg.Consumer.Skew}, Progress: recordBar(p),
		})
		if f.resume != "" {
			return f.goOn(cmd, p, o, player)
		}
		s, err := f.selection(o.cfg.Topics.Prefix, time.Now())
		if err != nil {
			return asUsage(err)
		}
		if f.group != "" {
			return f.resetGroup(cmd, player, &s)
		}
		return f.publish(cmd, p, player, &s)
	})
}

func (f *replayFlags) selection(prefix string, now time.Time) (replay.Selection, error) {
	if f.topic == "" {
		return replay.Selection{}, errors.New("name the --topic to replay, such as payment.commands")
	}
	s := replay.Selection{Topic: prefix + f.topic, Key: f.key, Caller: f.caller, Order: f.order}
	if s.Topic == payment.NewTopics(prefix).DeadLetter {
		return s, errors.New("dead letters are sent again with `settleonce deadletter redrive`")
	}
	var err error
	if s.Since, err = pointInTime("--since", f.since, now); err != nil {
		return s, err
	}
	if s.Until, err = pointInTime("--until", f.until, now); err != nil {
		return s, err
	}
	for _, text := range f.offsets {
		partition, span, err := parseSpan(text)
		if err != nil {
			return s, err
		}
		if s.Offsets == nil {
			s.Offsets = map[int]store.Span{}
		}
		s.Offsets[partition] = span
	}
	return s, s.Validate()
}

// pointInTime reads a time, or an age before now. Empty is the zero time.
func pointInTime(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if age, err := time.ParseDuration(text); err == nil && age >= 0 {
		return now.Add(-age), nil
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s %q is neither a time like 2026-11-30T10:00:00Z nor an age like 2h", flag, text)
	}
	return at, nil
}

func parseSpan(text string) (partition int, span store.Span, err error) {
	left, right, _ := strings.Cut(text, ":")
	from, to, _ := strings.Cut(right, "-")
	partition, err = strconv.Atoi(left)
	if err == nil {
		span.From, err = strconv.ParseInt(from, 10, 64)
	}
	if err == nil {
		span.To, err = strconv.ParseInt(to, 10, 64)
	}
	if err != nil {
		return 0, span, fmt.Errorf("--offsets %q is no part of a partition: write PARTITION:FROM-TO, like 3:1040-1050", text)
	}
	return partition, span, nil
}

// replayed is what -o json prints.
type replayed struct {
	replay.Preview

	// Replay is the replay that was run; nil for a dry run.
	Replay *store.Replay `json:"replay,omitempty"`
	next   string
}

func (f *replayFlags) publish(cmd *cobra.Command, p process, player *replay.Player, s *replay.Selection) error {
	preview, err := player.Look(cmd.Context(), s)
	if err != nil {
		return explainKafka(err)
	}
	done := replayed{Preview: preview, next: nothingChanged}
	if f.execute && preview.Matching > 0 {
		r, err := player.Begin(cmd.Context(), s, f.by)
		if err != nil {
			return err
		}
		return f.play(cmd, p, player, r, done)
	}
	if f.execute {
		done.next = "no record matches: nothing was changed"
	}
	return show(cmd, done, replayTable)
}

func (f *replayFlags) goOn(cmd *cobra.Command, p process, o *operator, player *replay.Player) error {
	id, err := uuid.Parse(f.resume)
	if err != nil {
		return asUsage(fmt.Errorf("--resume %q is not the id of a replay: it was printed when the replay began", f.resume))
	}
	r, err := o.store.FindReplay(cmd.Context(), id)
	if err != nil {
		return err
	}
	done := replayed{Preview: replay.Preview{Topic: r.Topic, Spans: maps.Clone(r.Positions)}, Replay: &r, next: "to go on, add: --execute"}
	if !f.execute {
		return show(cmd, done, replayTable)
	}
	return f.play(cmd, p, player, r, done)
}

// play runs the replay until it is done, or stopped.
func (f *replayFlags) play(cmd *cobra.Command, p process, player *replay.Player, r store.Replay, done replayed) error {
	fmt.Fprintf(p.stderr, "replay %s; Ctrl-C stops it\n", r.ID)
	r, err := player.Run(cmd.Context(), r, f.rate)
	done.Replay, done.next = &r, ""
	if err != nil {
		done.next = "stopped; to go on: settleonce replay --resume " + r.ID.String() + " --execute"
	}
	return errors.Join(show(cmd, done, replayTable), stopped(cmd.Context(), err))
}

// stopped leaves out the error of who pressed Ctrl-C.
func stopped(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return errors.New("stopped before its end")
	}
	return err
}

func replayTable(t *table, r replayed) {
	t.row("topic", r.Topic)
	for _, partition := range slices.Sorted(maps.Keys(r.Spans)) {
		t.row("", fmt.Sprintf("partition %d: offsets %d to %d", partition, r.Spans[partition].From, r.Spans[partition].To))
	}
	if r.Replay == nil || r.Matching > 0 {
		t.row("records", strconv.FormatInt(r.Records, 10))
		t.row("chosen", strconv.FormatInt(r.Matching, 10))
	}
	meanings := map[store.Foreseen]string{
		store.ForeseenFresh:    "unknown keys: they are charged, unless another payment stands in the way",
		store.ForeseenReplayed: "get their first outcome again",
		store.ForeseenPending:  "are told pending",
		store.ForeseenConflict: "another content under a known key: refused",
		store.ForeseenStale:    "unknown keys, too old: rejected, never charged",
		store.ForeseenRefused:  "invalid, or issued in the future: rejected",
		store.ForeseenDead:     "no commands: dead letters",
	}
	for _, f := range slices.Sorted(maps.Keys(r.Commands)) {
		t.row(string(f), strconv.FormatInt(r.Commands[f], 10), meanings[f])
	}
	for _, name := range slices.Sorted(maps.Keys(r.Types)) {
		t.row(name, strconv.FormatInt(r.Types[name], 10), "readers with an inbox drop what they have applied")
	}
	if r.Replay != nil {
		t.row("replay", r.Replay.ID.String())
		t.row("published", strconv.FormatInt(r.Replay.Published, 10), r.Replay.State)
	}
	if r.next != "" {
		t.row("next", r.next)
	}
}

// groupReset is what -o json prints.
type groupReset struct {
	replay.Reset

	Done bool `json:"done"`
}

func (f *replayFlags) resetGroup(cmd *cobra.Command, player *replay.Player, s *replay.Selection) error {
	r, err := player.LookGroup(cmd.Context(), s, f.group)
	if err != nil {
		return explainKafka(err)
	}
	if f.execute {
		if err := player.ResetGroup(cmd.Context(), r, f.by); err != nil {
			return err
		}
	}
	return show(cmd, groupReset{Reset: r, Done: f.execute}, resetTable)
}

func resetTable(t *table, r groupReset) {
	t.row("group", r.Group, r.State)
	for _, member := range r.Members {
		t.row("", member)
	}
	t.row("topic", r.Topic)
	for _, partition := range slices.Sorted(maps.Keys(r.To)) {
		t.row("", fmt.Sprintf("partition %d: offset %d back to %d", partition, r.From[partition], r.To[partition]))
	}
	t.row("delivered again", strconv.FormatInt(r.Again, 10))
	switch {
	case r.Done && r.Again > 0:
		t.row("done", "start the group's members again")
	case r.Again == 0:
		t.row("next", "nothing lies before the group's offsets: nothing to do")
	case len(r.Members) > 0:
		t.row("next", "nothing was changed; stop the members, then add: --execute --actor NAME --reason TEXT")
	default:
		t.row("next", nothingChanged)
	}
}

// recordBar shows on a terminal how many records were looked at; nil elsewhere.
func recordBar(p process) func(looked, all int64) {
	if !isTerminal(p.stderr) {
		return nil
	}
	bar := progressbar.NewOptions64(1, progressbar.OptionSetWriter(p.stderr), progressbar.OptionSetDescription("records"),
		progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
	return func(looked, all int64) {
		bar.ChangeMax64(max(all, 1))
		_ = bar.Set64(looked) // a bar that cannot be drawn is no reason to stop
	}
}

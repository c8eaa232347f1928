package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/internal/store"
)

func newDoctor(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use: "doctor", Short: "Look at everything and say what to do", GroupID: sectionOperators, Args: cobra.NoArgs,
		Example: "  settleonce doctor\n  settleonce doctor -o json | jq '.[] | select(.severity == \"fault\")'",
		Long: "Looks at connections, versions, migrations, durability, topics and their retention, clocks, groups, relays, and at what\n" +
			"is overdue. One line per finding, with what to do. It changes nothing. Exit code 1 when there is a fault.",
		RunE: func(cmd *cobra.Command, _ []string) error { return runDoctor(cmd, p) },
	}
	offerOutput(cmd)
	offer(cmd, config.GroupKafka, config.GroupTopics, config.GroupPostgres, config.GroupCallers, config.GroupChannel)
	offerOne(cmd, "window")
	offerOne(cmd, "skew")
	return cmd
}

// The severities of a finding.
const (
	isFine    = "ok"
	isWarning = "warning"
	isFault   = "fault"
)

// diagnosis is one finding.
type diagnosis struct {
	Severity string `json:"severity"`
	Area     string `json:"area"`
	Finding  string `json:"finding"`
	// Do is what to do about it; empty where there is nothing to do.
	Do string `json:"do,omitempty"`
}

// doctor collects findings.
type doctor struct {
	cfg   *config.Config
	found []diagnosis
}

func (d *doctor) add(severity, area, finding, do string) {
	d.found = append(d.found, diagnosis{severity, area, strings.Join(strings.Fields(finding), " "), do})
}

// check adds an error as a fault, or says that all is well.
func (d *doctor) check(area string, err error, fine string) bool {
	if err != nil {
		d.add(isFault, area, err.Error(), "")
		return false
	}
	if fine != "" {
		d.add(isFine, area, fine, "")
	}
	return true
}

func runDoctor(cmd *cobra.Command, p process) error {
	if _, err := wantsJSON(cmd); err != nil {
		return err
	}
	l, err := load(cmd, p)
	if err != nil {
		return err
	}
	d := &doctor{cfg: &l.Config}
	for _, sentence := range d.cfg.Warnings() {
		d.add(isWarning, "settings", sentence, "")
	}
	d.examineKafka(cmd.Context())
	d.examinePostgres(cmd.Context())
	if err := show(cmd, d.found, diagnosisTable); err != nil {
		return err
	}
	for _, f := range d.found {
		if f.Severity == isFault {
			return errors.New("there are faults: see above")
		}
	}
	return nil
}

func diagnosisTable(t *table, found []diagnosis) {
	for _, f := range found {
		t.row(f.Severity, f.Area, f.Finding)
		if f.Do != "" {
			t.row("", "", "→ "+f.Do)
		}
	}
}

func (d *doctor) examineKafka(ctx context.Context) {
	client, err := openKafka(ctx, d.cfg, zerolog.Nop())
	if !d.check("kafka", err, "reachable") {
		return
	}
	defer client.Close()
	findings, err := checkTopics(ctx, client, d.cfg)
	if d.check("topics", err, "") {
		for _, f := range findings {
			d.add(string(f.Severity), "topics", f.Topic+" "+f.Text, "")
		}
		if len(findings) == 0 {
			d.add(isFine, "topics", "they keep what the guarantees need, and not longer than keys are remembered", "")
		}
	}
	d.examineGroups(ctx, client)
}

// farBehind is a lag that somebody should look at.
const farBehind = 60.0

func (d *doctor) examineGroups(ctx context.Context, client *kafka.Client) {
	readers, err := readersOf(d.cfg, nil)
	if !d.check("groups", err, "") {
		return
	}
	for _, r := range readers {
		g, err := r.lag(ctx, client, time.Now())
		if !d.check("groups", err, "") {
			continue
		}
		if len(g.Members) == 0 {
			d.add(isFault, "groups", "nobody is in group "+g.Group, "start its role: settleonce consumer, or settleonce reconciler")
		}
		for _, l := range g.Topics {
			if l.Lost > 0 {
				d.add(isFault, "groups", fmt.Sprintf("%d records of %s were removed before %s read them", l.Lost, l.Topic, g.Group),
					"raise the topic's retention; ask the callers of that time to publish again")
			}
			if l.Seconds > farBehind {
				d.add(isWarning, "groups", fmt.Sprintf("%s is %.0f s and %d records behind in %s", g.Group, l.Seconds, l.Records, l.Topic),
					"look at its processes and at settleonce lag --partitions; start more of them where they are busy")
			}
		}
	}
}

func (d *doctor) examinePostgres(ctx context.Context) {
	pool, err := openPool(ctx, d.cfg, "doctor")
	if !d.check("postgres", err, "reachable") {
		return
	}
	defer pool.Close()
	if !d.check("migrations", checkMigrations(ctx, pool), "the schema is the one that this binary needs") {
		return
	}
	// The checks of a start tell what is merely weak to a log.
	log := zerolog.New(warningWriter{d})
	d.check("durability", checkDurability(ctx, pool, d.cfg, log), "committed transactions survive a crash")
	s := store.New(store.Config{Pool: pool, Topics: topicNames(d.cfg), Logger: zerolog.Nop()})
	d.check("installation", checkInstallation(ctx, s, log), "")
	d.examineDatabase(ctx, s)
}

// warningWriter makes findings of a log's warnings.
type warningWriter struct{ d *doctor }

// Write reads one line of the log.
func (w warningWriter) Write(line []byte) (int, error) {
	var entry struct {
		Level   string `json:"level"`
		Message string `json:"message"`
		Reason  string `json:"reason"`
	}
	if err := json.Unmarshal(line, &entry); err != nil {
		return 0, fmt.Errorf("read what a check said: %w", err)
	}
	severity := isWarning
	if entry.Level == zerolog.LevelErrorValue {
		severity = isFault
	}
	text := entry.Message
	if entry.Reason != "" {
		text += " (" + entry.Reason + ")"
	}
	w.d.add(severity, "database", text, "")
	return len(line), nil
}

// oldestPostgres is the first version that settleonce runs on.
const oldestPostgres = 150000

// slowClock is a difference between clocks that is worth a word.
const slowClock = time.Second

func (d *doctor) examineDatabase(ctx context.Context, s *store.Store) {
	begun := time.Now()
	v, err := s.Vitals(ctx)
	if !d.check("database", err, "") {
		return
	}
	if v.ServerVersion < oldestPostgres {
		d.add(isFault, "database", fmt.Sprintf("Postgres %d is too old", v.ServerVersion/10000), "run 15 or newer")
	}
	const percent = 100
	if v.Connections*percent > v.MaxConnections*80 {
		d.add(isWarning, "database", fmt.Sprintf("%d of %d connections are in use", v.Connections, v.MaxConnections),
			"raise max_connections, or lower postgres-pool-size of the processes")
	}
	d.examineClock(v.Clock, begun, time.Now())
	if v.Overdue > 0 {
		d.add(isFault, "reconciler", fmt.Sprintf("%d unresolved payments are overdue, the first by %s", v.Overdue, v.OverdueBy.Round(time.Second)),
			"see whether a reconciler runs and whether the channel's breaker is open: settleonce status")
	}
	if v.Relays == 0 {
		d.add(isFault, "outbox", "no relay is alive", "start one: settleonce outbox")
	} else if v.Unowned > 0 {
		d.add(isWarning, "outbox", fmt.Sprintf("%d shards have no relay now", v.Unowned), "look again in half a minute: a relay may have just ended")
	}
	if v.Replays > 0 {
		d.add(isWarning, "operators", fmt.Sprintf("%d replays were interrupted", v.Replays), "go on with them: settleonce replay --resume ID --execute")
	}
	if v.Letters > 0 {
		d.add(isWarning, "operators", fmt.Sprintf("the redrive of %d dead letters was interrupted", v.Letters), "settleonce deadletter list --state redriving")
	}
	o, err := s.Overview(ctx)
	if d.check("database", err, "") {
		d.examineOverview(&o)
	}
}

// examineClock compares the database's clock with ours, which was read before and
// after the question.
func (d *doctor) examineClock(clock, before, after time.Time) {
	ahead, behind := clock.Sub(after), before.Sub(clock)
	switch off := max(ahead, behind); {
	case off > d.cfg.Consumer.Skew:
		d.add(isFault, "clocks", fmt.Sprintf("this machine's clock and the database's differ by %s, more than skew allows", off.Round(time.Second)),
			"set them by NTP: commands of such a machine are refused as issued in the future, or look old")
	case off > slowClock:
		d.add(isWarning, "clocks", fmt.Sprintf("this machine's clock and the database's differ by %s", off.Round(time.Millisecond)), "set them by NTP")
	default:
		d.add(isFine, "clocks", "this machine's and the database's agree", "")
	}
}

// lateOutbox is an age at which a message should have been published.
const lateOutbox = 30 * time.Second

func (d *doctor) examineOverview(o *store.Overview) {
	if o.OutboxOldest > lateOutbox {
		d.add(isFault, "outbox", fmt.Sprintf("the oldest of %d messages waits for %s", o.Outbox, o.OutboxOldest.Round(time.Second)),
			"see whether a relay runs and Kafka takes messages")
	}
	if o.OutboxParked > 0 {
		d.add(isWarning, "outbox", fmt.Sprintf("%d messages cannot be published as they are; their keys wait behind them", o.OutboxParked),
			"SELECT seq, shard, aggregatetype, parked_reason FROM settleonce.outbox WHERE parked_reason IS NOT NULL; repair, then set it to NULL")
	}
	for kind, n := range o.Reviews {
		d.add(isWarning, "review", fmt.Sprintf("%d items of kind %s wait for a person", n, kind), "settleonce review list")
	}
	for _, c := range o.Channels {
		if c.BreakerOpen {
			d.add(isWarning, "channel", "the breaker of channel "+c.Channel+" is open: its payments are parked", "look at the channel; they go on by themselves")
		}
	}
	for name, n := range o.UnmatchedCallbacks {
		d.add(isWarning, "callbacks", fmt.Sprintf("%d callbacks of channel %s belong to no payment yet", n, name),
			"they are matched when their payment comes; after some hours they are review items")
	}
}

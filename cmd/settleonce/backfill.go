package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/rs/zerolog"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/backfill"
	"github.com/settleonce/settleonce/internal/callers"
	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/internal/store"
)

// backfillFlags are the flags of `settleonce backfill` that are no settings.
type backfillFlags struct {
	csv, delimiter, query, dsn, name string
	columns, values, outcomes        map[string]string
	amounts, rejects, actor, reason  string
	execute, ask                     bool
	batch                            int
	rate                             float64
}

func newBackfill(p process) *cobra.Command {
	var f backfillFlags
	cmd := &cobra.Command{
		Use: "backfill", Short: "Bring in the payments that you already have", GroupID: sectionTools,
		Example: "  settleonce backfill --csv payments.csv --set caller=shop,channel=stripe \\\n" +
			"    --map id=pay_id,orderId=order_no,outcome=status --outcomes paid=succeeded,failed=declined,open=unknown\n" +
			"  settleonce backfill --source-dsn 'postgres://reader@legacy:5432/shop' --query 'SELECT id, … FROM payments' …\n" +
			"  settleonce backfill … --execute --reason 'moving the shop: SHOP-7'",
		Long: "Without --execute nothing is changed: the report says what would be done, and which rows cannot be taken.\n" +
			"Fields of a payment: " + strings.Join(backfill.Fields(), ", ") + ".\n" +
			"A field is given by the column of its name, or by that of --map, or by --set for all rows. May be repeated:\n" +
			"what is there stays, and an interrupted run goes on. docs/adoption.md has the way step by step.",
		Args: cobra.NoArgs,
	}
	f.offer(cmd, p)
	offerOutput(cmd)
	offer(cmd, config.GroupPostgres, config.GroupCallers, config.GroupChannel)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return f.run(cmd, p) }
	return cmd
}

func (f *backfillFlags) offer(cmd *cobra.Command, p process) {
	flags := cmd.Flags()
	flags.StringVar(&f.csv, "csv", "", "file of values; its first row names the columns")
	flags.StringVar(&f.delimiter, "delimiter", ",", "what stands between the values of --csv")
	flags.StringVar(&f.query, "query", "", "one SELECT without ORDER BY, or @FILE; its column for the field id orders it")
	flags.StringVar(&f.dsn, "source-dsn", "", "the database of --query, where a user who may read is enough; PGHOST, PGPASSWORD etc. count too")
	flags.StringVar(&f.name, "name", "", "what the source is called: a run goes on where one of this name was stopped (default: the file's name, or query)")
	flags.StringToStringVar(&f.columns, "map", nil, "FIELD=COLUMN,…: which column gives a field")
	flags.StringToStringVar(&f.values, "set", nil, "FIELD=VALUE,…: a value for all rows")
	flags.StringToStringVar(&f.outcomes, "outcomes", nil, "WORD=OUTCOME,…: what the source's words mean, as succeeded, declined or unknown. "+
		"Declined is only what the provider said: a timeout is unknown")
	flags.StringVar(&f.amounts, "amounts", "minor", "minor: amounts like 1999, or major: like 19.99")
	flags.BoolVar(&f.ask, "ask", false, "let the reconciler ask the provider, slowly, about payments without an outcome whose providerKey is known")
	flags.StringVar(&f.rejects, "rejects", "", "new file for the rows that are not taken, one JSON object each")
	flags.IntVar(&f.batch, "batch", 500, "rows per transaction")
	flags.Float64Var(&f.rate, "rate", 2000, "rows per second at most; 0: no bound")
	flags.BoolVar(&f.execute, "execute", false, "do it")
	flags.StringVar(&f.actor, "actor", p.variable("USER"), "who does it, for the audit")
	flags.StringVar(&f.reason, "reason", "", "why, for the audit")
}

func (f *backfillFlags) validate() error {
	switch {
	case (f.csv == "") == (f.query == ""):
		return errors.New("name one source: --csv FILE, or --query SELECT with --source-dsn")
	case f.csv != "" && f.dsn != "":
		return errors.New("--source-dsn belongs to --query: leave it out with --csv")
	case utf8.RuneCountInString(f.delimiter) != 1 || strings.ContainsAny(f.delimiter, "\"\r\n"):
		return errors.New("--delimiter must be one character, and no quote")
	case f.amounts != "minor" && f.amounts != "major":
		return fmt.Errorf("--amounts %s is not known: use minor or major", f.amounts)
	}
	return f.validateRun()
}

func (f *backfillFlags) validateRun() error {
	switch {
	case f.batch < 1 || f.batch > 5000:
		return fmt.Errorf("--batch is %d: take 1 to 5000 rows per transaction", f.batch)
	case f.rate < 0:
		return errors.New("--rate must not be negative; 0 is no bound")
	case f.execute && f.reason == "":
		return errors.New("--execute needs --reason: it goes into the audit")
	case f.execute && f.actor == "":
		return errors.New("--execute needs --actor: it goes into the audit")
	default:
		return nil
	}
}

func (f *backfillFlags) run(cmd *cobra.Command, p process) error {
	if err := f.validate(); err != nil {
		return asUsage(err)
	}
	l, err := load(cmd, p)
	if err != nil {
		return err
	}
	source, err := f.open(cmd.Context())
	if err != nil {
		return markInput(err)
	}
	err = f.connect(cmd, p, source, &l.Config)
	return errors.Join(markInput(err), source.Close(cmd.Context()))
}

// connect opens the database, which is asked for the callers too.
func (f *backfillFlags) connect(cmd *cobra.Command, p process, source backfill.Source, c *config.Config) error {
	pool, err := openPool(cmd.Context(), c, "backfill")
	if err != nil {
		return err
	}
	defer pool.Close()
	s := store.New(store.Config{Pool: pool, Topics: topicNames(c), Logger: zerolog.Nop()})
	known, err := knownCallers(cmd.Context(), callers.NewRegistry(pool, s), c)
	if err != nil {
		return explainPostgres(err)
	}
	return explainPostgres(f.takeFrom(cmd, p, source, s, c, known))
}

// markInput makes a fault of the source one of usage: another try needs another call.
func markInput(err error) error {
	if errors.Is(err, backfill.ErrInput) {
		return asUsage(err)
	}
	return err
}

func (f *backfillFlags) open(ctx context.Context) (backfill.Source, error) {
	if f.csv != "" {
		delimiter, _ := utf8.DecodeRuneInString(f.delimiter)
		return backfill.OpenCSV(f.csv, delimiter)
	}
	text := f.query
	if file, ok := strings.CutPrefix(text, "@"); ok {
		read, err := os.ReadFile(file)
		if err != nil {
			return nil, asUsage(fmt.Errorf("the file of --query cannot be read: %w", err))
		}
		text = string(read)
	}
	key := backfill.FieldID
	if column, ok := f.columns[backfill.FieldID]; ok {
		key = column
	}
	return backfill.OpenQuery(ctx, backfill.QueryConfig{DSN: f.dsn, SQL: text, Key: key})
}

// sourceName is what progress is kept under.
func (f *backfillFlags) sourceName() string {
	switch {
	case f.name != "":
		return f.name
	case f.csv != "":
		return filepath.Base(f.csv)
	default:
		return "query"
	}
}

func (f *backfillFlags) takeFrom(cmd *cobra.Command, p process, source backfill.Source, s *store.Store, c *config.Config,
	known func(string) (string, bool),
) error {
	mapping, err := backfill.NewMapping(backfill.MappingConfig{
		Columns: f.columns, Values: f.values, Outcomes: f.outcomes, MajorUnits: f.amounts == "major", Ask: f.ask,
		Caller: known, Registered: c.Callers.InDatabase(),
		Identity: func(channel string) string { return c.Channels[channel].Capabilities.Identity },
	}, source.Columns())
	if err != nil {
		return err
	}
	run := backfill.Config{
		Source: source, Mapping: mapping, Store: s, Name: f.sourceName(), Execute: f.execute, Actor: f.actor, Reason: f.reason,
		Batch: f.batch, Rate: f.rate, Progress: backfillBar(p.stderr, source.Total()),
	}
	if f.rejects != "" {
		file, err := os.OpenFile(f.rejects, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return asUsage(fmt.Errorf("--rejects must name a new file: %w", err))
		}
		defer file.Close()
		run.Rejects = file
	}
	report, err := backfill.Run(cmd.Context(), run)
	if report.Read == 0 && err != nil {
		return err
	}
	return errors.Join(showBackfill(cmd, report, f), err, unfinished(report, err))
}

// knownCallers are those of the table or of the configuration, whichever the
// consumers go by. Where the configuration names none, any may be.
func knownCallers(ctx context.Context, registry *callers.Registry, c *config.Config) (func(string) (string, bool), error) {
	if !c.Callers.InDatabase() {
		return func(name string) (string, bool) {
			namespace, _ := c.Callers.Namespace(name)
			_, listed := c.Callers.Namespaces[name]
			return namespace, listed || len(c.Callers.Namespaces) == 0
		}, nil
	}
	entries, err := registry.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the callers: %w", err)
	}
	namespaces := make(map[string]string, len(entries))
	for i := range entries {
		namespaces[entries[i].Name] = entries[i].Namespace
	}
	return func(name string) (string, bool) {
		namespace, ok := namespaces[name]
		return namespace, ok
	}, nil
}

// unfinished makes a run that left rows behind fail, after its report.
func unfinished(report backfill.Report, err error) error {
	if n := report.NotTaken(); n > 0 && err == nil {
		return fmt.Errorf("%d of %d rows cannot be taken: see the report, correct them at their source or in the mapping, and run it again", n, report.ResumedAfter+report.Read)
	}
	return nil
}

// backfillBar shows progress on a terminal, and nothing elsewhere.
func backfillBar(w io.Writer, total int64) func(read, total int64) {
	if !isTerminal(w) || total <= fewCommands {
		return nil
	}
	bar := progressbar.NewOptions64(total, progressbar.OptionSetWriter(w), progressbar.OptionSetDescription("reading"),
		progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionClearOnFinish())
	return func(read, total int64) {
		_ = bar.Set64(min(read, total)) // a bar that cannot be drawn is no reason to stop
	}
}

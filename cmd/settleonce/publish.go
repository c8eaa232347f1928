package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/payment"
	"github.com/settleonce/settleonce/producer"
	"github.com/settleonce/settleonce/producer/jsonl"
)

// publishFlags are the fields of one command, and how lines are read.
type publishFlags struct {
	topic                                              string
	caller, order, currency, customer, method, channel string
	obligation, follows, key, issuedAt                 string
	amount                                             int64
	metadata                                           map[string]string
	save                                               string
	skipInvalid                                        bool
	batch                                              int
}

func newPublish(p process) *cobra.Command {
	f := &publishFlags{}
	cmd := &cobra.Command{
		Use: "publish [FILE]", Short: "Publish payment commands from flags or JSON lines", GroupID: sectionStart,
		Example: "  settleonce publish --caller shop --order order-1001 --amount 1999 --currency EUR\n" +
			"  settleonce publish commands.jsonl\n" +
			"  generate | settleonce publish - --save commands.jsonl\n" +
			"  settleonce publish commands.jsonl -o json",
		Long: "Publishes one command made from flags, or one per line of a file or of standard input (-). A line\n" +
			"without idempotencyKey gets one; --save keeps the completed commands before the first is sent,\n" +
			"since only they can be published again safely. Everything is read and checked before anything\n" +
			"is sent.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return publish(cmd, p, f, args) },
	}
	offerOutput(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.caller, "caller", "shop", "the upstream service that the command belongs to")
	flags.StringVar(&f.order, "order", "", "the order that is paid for")
	flags.Int64Var(&f.amount, "amount", 0, "in minor units: 1999 is 19.99 EUR, and 1999 JPY")
	flags.StringVar(&f.currency, "currency", "EUR", "ISO 4217 code")
	flags.StringVar(&f.customer, "customer", "cust-1", "the payer")
	flags.StringVar(&f.method, "method", "tok_visa", "token of the payment method, never card data")
	flags.StringVar(&f.channel, "channel", "sim", "the payment provider")
	flags.StringVar(&f.obligation, "obligation", "", "what is being paid, where that is not the whole order")
	flags.StringVar(&f.follows, "follows", "", "id of the payment that this one knowingly comes after")
	flags.StringVar(&f.key, "key", "", "the key of a command that is published again; a fresh one by default")
	flags.StringVar(&f.issuedAt, "issued-at", "", "time of the intent, RFC 3339; now by default")
	flags.StringToStringVar(&f.metadata, "metadata", nil, "handed to the provider, like cart=c-55,shop=berlin")
	flags.StringVar(&f.save, "save", "", "file for the completed commands, written before the first is sent")
	flags.BoolVar(&f.skipInvalid, "skip-invalid", false, "publish the valid lines of an input with mistakes")
	flags.StringVar(&f.topic, "topic", payment.NewTopics("").Commands, "command topic of the caller, without topic-prefix")
	flags.IntVar(&f.batch, "batch", 500, "commands sent at once, at most")
	offer(cmd, config.GroupKafka)
	offerOne(cmd, "topic-prefix")
	offerOne(cmd, "signing-keys-file")
	offerOne(cmd, "signing-key")
	return cmd
}

func publish(cmd *cobra.Command, p process, f *publishFlags, args []string) error {
	l, err := load(cmd, p)
	if err != nil {
		return err
	}
	if _, err := wantsJSON(cmd); err != nil {
		return err
	}
	if f.batch < 1 {
		return asUsage(fmt.Errorf("--batch is %d: send at least 1 command at once", f.batch))
	}
	in, err := f.input(p, args)
	if err != nil {
		return err
	}
	if len(in.Problems) > 0 && !f.skipInvalid {
		// Nothing will be sent, so neither a broker nor --save is needed to say what is wrong.
		return conclude(cmd, in, jsonl.Publish(cmd.Context(), nil, in, jsonl.Options{}))
	}
	if err := f.keep(&in, args); err != nil {
		return err
	}
	sender, err := openProducer(cmd.Context(), &l.Config, f.topic)
	if err != nil {
		return err
	}
	if len(args) == 0 {
		// Before the send: whoever is cut off now must be able to publish the same command again.
		c := &in.Lines[0].Command
		fmt.Fprintf(p.stderr, "key %s, to publish it again: --key %s --issued-at %s\n",
			c.IdempotencyKey, c.IdempotencyKey, c.IssuedAt.Format(time.RFC3339Nano))
	}
	bar := newBar(p.stderr, len(in.Lines))
	report := jsonl.Publish(cmd.Context(), sender, in, jsonl.Options{SkipInvalid: f.skipInvalid, BatchSize: f.batch, Progress: bar})
	closing, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), 10*time.Second)
	defer cancel()
	return errors.Join(conclude(cmd, in, report), sender.Close(closing))
}

// conclude reports, and fails unless every line was published.
func conclude(cmd *cobra.Command, in jsonl.Input, report jsonl.Report) error {
	if err := showPublished(cmd, in, report); err != nil {
		return err
	}
	if !report.Complete() {
		return fmt.Errorf("%d of %d commands were published: %s",
			report.Published, len(in.Lines)+len(in.Problems), report.Next)
	}
	return nil
}

// input reads the lines, or makes one command from the flags.
func (f *publishFlags) input(p process, args []string) (jsonl.Input, error) {
	if len(args) == 0 {
		return f.one()
	}
	in := p.stdin
	if args[0] != "-" {
		file, err := os.Open(args[0])
		if err != nil {
			return jsonl.Input{}, asUsage(fmt.Errorf("open the commands, or use - for standard input: %w", err))
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	lines, err := jsonl.Read(in)
	if err != nil {
		return lines, fmt.Errorf("read the commands: %w", err)
	}
	if len(lines.Lines)+len(lines.Problems) == 0 {
		return lines, fmt.Errorf("%s holds no command: write one JSON object per line", args[0])
	}
	return lines, nil
}

func (f *publishFlags) one() (jsonl.Input, error) {
	if f.order == "" {
		return jsonl.Input{}, asUsage(errors.New("name an --order and an --amount, or a file of JSON lines (- for standard input)"))
	}
	intent := producer.Intent{
		Caller: f.caller, OrderID: f.order, Amount: f.amount, Currency: f.currency, CustomerID: f.customer,
		PaymentMethod: f.method, Channel: f.channel, Obligation: f.obligation, Metadata: f.metadata,
	}
	if f.follows != "" {
		follows, err := uuid.Parse(f.follows)
		if err != nil {
			return jsonl.Input{}, asUsage(fmt.Errorf("--follows %q is not the id of a payment: see `settleonce status`", f.follows))
		}
		intent.Follows = &follows
	}
	command, err := producer.NewCommand(intent)
	if err != nil {
		return jsonl.Input{}, asUsage(err)
	}
	if err := f.again(&command); err != nil {
		return jsonl.Input{}, err
	}
	return jsonl.Input{Lines: []jsonl.Line{{Command: command}}}, nil
}

// again gives the command the identity of an earlier one.
func (f *publishFlags) again(command *payment.Command) error {
	var err error
	if f.key != "" {
		if command.IdempotencyKey, err = uuid.Parse(f.key); err != nil {
			return asUsage(fmt.Errorf("--key %q is not a UUID: use the key of the command that is published again", f.key))
		}
	}
	if f.issuedAt != "" {
		if command.IssuedAt, err = time.Parse(time.RFC3339Nano, f.issuedAt); err != nil {
			return asUsage(fmt.Errorf("--issued-at %q is not a time: write it like 2026-11-30T10:00:00Z", f.issuedAt))
		}
	}
	return asUsage(command.Validate())
}

// keep writes the completed commands to the file of --save. Lines that got
// their key here must be kept: a second run would make other keys, and so
// charge a second time.
func (f *publishFlags) keep(in *jsonl.Input, args []string) error {
	if f.save == "" {
		if len(args) > 0 && in.Generated() {
			return asUsage(errors.New("some lines have no idempotencyKey: name a file with --save that keeps the completed commands, " +
				"which can then be published again safely"))
		}
		return nil
	}
	file, err := os.OpenFile(f.save, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write the completed commands, --save must name a new file: %w", err)
	}
	var text []byte
	for i := range in.Lines {
		text = append(in.Lines[i].Command.AppendJSON(text), '\n')
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("write the completed commands: %w", err)
	}
	return nil
}

func openProducer(ctx context.Context, c *config.Config, topic string) (*producer.Producer, error) {
	encryption, err := c.Kafka.TLSConfig()
	if err != nil {
		return nil, asUsage(err)
	}
	key, err := signingKey(c)
	if err != nil {
		return nil, err
	}
	sender, err := producer.New(producer.Config{
		Brokers: c.Kafka.Brokers, TLS: encryption, Prefix: c.Topics.Prefix, Topic: topic, SigningKey: key,
		SASL: producer.SASL{Mechanism: c.Kafka.SASLMechanism, Username: c.Kafka.SASLUsername, Password: c.Kafka.SASLPassword},
	})
	if err != nil {
		return nil, asUsage(err)
	}
	if err := sender.Ping(ctx); err != nil {
		return nil, errors.Join(explainKafka(err), sender.Close(ctx))
	}
	return sender, nil
}

// published is what -o json prints.
type published struct {
	jsonl.Report

	// Commands are the keys and payments of a short input.
	Commands []publishedCommand `json:"commands,omitempty"`
}

type publishedCommand struct {
	Key       uuid.UUID `json:"idempotencyKey"`
	PaymentID uuid.UUID `json:"paymentId"`
	Order     string    `json:"orderId"`
}

// fewCommands is how many commands are worth a line each.
const fewCommands = 20

func showPublished(cmd *cobra.Command, in jsonl.Input, report jsonl.Report) error {
	result := published{Report: report}
	if len(in.Lines) <= fewCommands {
		for i := range in.Lines {
			c := &in.Lines[i].Command
			result.Commands = append(result.Commands, publishedCommand{c.IdempotencyKey, c.Identity().PaymentID(), c.OrderID})
		}
	}
	return show(cmd, result, func(t *table, r published) {
		t.row("published", r.Published)
		for _, count := range []struct {
			name string
			n    int
		}{{"unknown", r.Unknown}, {"not sent", r.NotSent}, {"invalid", r.Invalid}} {
			if count.n > 0 {
				t.row(count.name, count.n)
			}
		}
		for i := range r.Details[:min(len(r.Details), fewCommands)] {
			t.row(r.Details[i].Status, r.Details[i].Problem)
		}
		for _, c := range r.Commands {
			t.row("key", c.Key, "order", c.Order)
		}
	})
}

// newBar shows progress on a terminal, and nothing elsewhere.
func newBar(w io.Writer, total int) func(handled, total int) {
	if !isTerminal(w) || total <= fewCommands {
		return nil
	}
	bar := progressbar.NewOptions(total, progressbar.OptionSetWriter(w), progressbar.OptionSetDescription("publishing"),
		progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish())
	return func(handled, _ int) {
		_ = bar.Set(handled) // a bar that cannot be drawn is no reason to stop
	}
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/callers"
	"github.com/settleonce/settleonce/internal/callers/signing"
	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/internal/store"
)

func newCallers(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use: "callers", Short: "Say who may ask for payments, and give them keys", GroupID: sectionTools,
		Example: "  settleonce callers add shop --rate 200\n" +
			"  settleonce callers rotate shop --keep 24h\n" +
			"  settleonce callers list",
		Long: "A caller is an upstream service. Its keys are for the HTTP edge (Authorization: Bearer KEY) and are shown\n" +
			"once; only their hashes are kept. With callers-from=database the consumers take commands of these callers\n" +
			"only. Every change leaves a row in the audit. See docs/callers.md.",
		Args: knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, add := range []func(process) *cobra.Command{
		newCallersAdd, newCallersList, newCallersSet, newCallersRotate, newCallersRevoke, newSigningKey,
	} {
		cmd.AddCommand(add(p))
	}
	return cmd
}

// byFlags are who and why, for the audit.
type byFlags struct{ actor, reason string }

func (f *byFlags) offer(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.actor, "actor", "", "who does this, for the audit (default: variable USER)")
	cmd.Flags().StringVar(&f.reason, "reason", "", "why, for the audit")
}

func (f *byFlags) by(p process) (callers.By, error) {
	by := callers.By{Actor: f.actor, Reason: f.reason}
	for _, name := range []string{"USER", "LOGNAME"} {
		if by.Actor == "" {
			by.Actor = p.variable(name)
		}
	}
	if by.Actor == "" {
		return by, asUsage(errors.New("--actor is not given and variable USER is empty: say who does this"))
	}
	return by, nil
}

// callerFlags are what may be set of a caller.
type callerFlags struct {
	namespace, graceUntil string
	rate                  float64
	burst                 int
	issuedAt              bool
}

func (f *callerFlags) offer(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.namespace, "namespace", "", "namespace of its obligations, which several callers may share (default: the caller's name)")
	flags.Float64Var(&f.rate, "rate", 0, "requests per second that each process of the edge takes; 0: no limit")
	flags.IntVar(&f.burst, "burst", 0, "requests at once (default: one second's)")
	flags.BoolVar(&f.issuedAt, "require-issued-at", false, "the edge refuses payments without issuedAt, the time of the intent")
	flags.StringVar(&f.graceUntil, "grace-until", "", "until when the edge makes up a missing key, like 2027-03-31; none ends it")
}

// change holds what was given on the command line, and nothing else.
func (f *callerFlags) change(cmd *cobra.Command) (callers.Change, error) {
	var set callers.Change
	given := cmd.Flags().Changed
	if given("namespace") {
		set.Namespace = &f.namespace
	}
	if given("rate") {
		set.Rate = &f.rate
	}
	if given("burst") {
		set.Burst = &f.burst
	}
	if given("require-issued-at") {
		set.RequireIssuedAt = &f.issuedAt
	}
	if !given("grace-until") {
		return set, nil
	}
	var until time.Time
	if f.graceUntil != "none" {
		var err error
		if until, err = parseDay(f.graceUntil); err != nil {
			return set, asUsage(fmt.Errorf("--grace-until %q is not a day: write it like 2027-03-31, or none", f.graceUntil))
		}
	}
	set.GraceUntil = &until
	return set, nil
}

// parseDay reads a day, which then counts to its end in UTC, or a time.
func parseDay(text string) (time.Time, error) {
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		return day.AddDate(0, 0, 1), nil
	}
	return time.Parse(time.RFC3339, text)
}

// withRegistry connects for one change or question.
func withRegistry(cmd *cobra.Command, p process, ask func(*callers.Registry) error) error {
	if _, err := wantsJSON(cmd); err != nil {
		return err
	}
	l, err := load(cmd, p)
	if err != nil {
		return err
	}
	pool, err := openPool(cmd.Context(), &l.Config, "callers")
	if err != nil {
		return err
	}
	defer pool.Close()
	err = ask(callers.NewRegistry(pool, store.New(store.Config{Pool: pool, Logger: zerolog.Nop()})))
	if errors.Is(err, callers.ErrRefused) {
		return err
	}
	return explainPostgres(err)
}

func newCallersAdd(p process) *cobra.Command {
	var by byFlags
	var set callerFlags
	var credential string
	cmd := &cobra.Command{
		Use: "add CALLER", Short: "Add a caller with its first key, or a further credential of one",
		Example: "  settleonce callers add shop\n" +
			"  settleonce callers add shop-cron --namespace shop --rate 50 --burst 200\n" +
			"  settleonce callers add shop --credential mobile         a second credential of the same caller",
		Long: "Prints the key, once: it cannot be shown again. A caller that was shut out comes back with a new key.\n" +
			"A caller that already has payments must keep their namespace.",
		Args: oneCaller,
		RunE: func(cmd *cobra.Command, args []string) error {
			who, err := by.by(p)
			if err != nil {
				return err
			}
			change, err := set.change(cmd)
			if err != nil {
				return err
			}
			return withRegistry(cmd, p, func(r *callers.Registry) error {
				issued, err := r.Add(cmd.Context(), who, args[0], credential, change)
				if err != nil {
					return err
				}
				return show(cmd, issued, issuedTable)
			})
		},
	}
	cmd.Flags().StringVar(&credential, "credential", callers.DefaultCredential, "name of the credential, where a caller has several")
	set.offer(cmd)
	by.offer(cmd)
	offerOutput(cmd)
	offer(cmd, config.GroupPostgres)
	return cmd
}

// oneCaller wants the name of a caller.
func oneCaller(_ *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return errors.New("name one caller, like shop")
	}
	return nil
}

func issuedTable(t *table, i callers.Issued) {
	t.row("caller", i.Caller)
	t.row("credential", i.Credential)
	t.row("key", i.Bearer)
	t.row("", "shown once: store it now, only its hash is kept")
	if i.Until != nil {
		t.row("old key", "counts until "+i.Until.UTC().Format(time.RFC3339))
	}
}

func newCallersSet(p process) *cobra.Command {
	var by byFlags
	var set callerFlags
	cmd := &cobra.Command{
		Use: "set CALLER", Short: "Change the limits, the flags or the namespace of a caller",
		Example: "  settleonce callers set shop --rate 500\n" +
			"  settleonce callers set shop --require-issued-at\n" +
			"  settleonce callers set shop --grace-until none",
		Long: "What is not named stays. The edge knows it within 5 seconds. The namespace cannot be changed while a payment\n" +
			"of the caller is open or remembered: it would no longer keep its order from being paid twice.",
		Args: oneCaller,
		RunE: func(cmd *cobra.Command, args []string) error {
			who, err := by.by(p)
			if err != nil {
				return err
			}
			change, err := set.change(cmd)
			if err != nil {
				return err
			}
			return withRegistry(cmd, p, func(r *callers.Registry) error {
				c, err := r.Set(cmd.Context(), who, args[0], change)
				if err != nil {
					return err
				}
				return show(cmd, viewOfCaller(callers.Entry{Caller: c}), func(t *table, v callerView) { v.fill(t) })
			})
		},
	}
	set.offer(cmd)
	by.offer(cmd)
	offerOutput(cmd)
	offer(cmd, config.GroupPostgres)
	return cmd
}

func newCallersRotate(p process) *cobra.Command {
	var by byFlags
	var credential string
	var keep time.Duration
	cmd := &cobra.Command{
		Use: "rotate CALLER", Short: "Make a new key, and let the old one end later",
		Example: "  settleonce callers rotate shop                     the old key counts for 24 hours more\n" +
			"  settleonce callers rotate shop --keep 0            the old key ends now\n" +
			"  settleonce callers rotate shop --credential mobile",
		Long: "Two keys of a credential count at once, so that a service changes over without a gap: rotate, give it the\n" +
			"new key, and the old one ends by itself. A third one is refused until then.",
		Args: oneCaller,
		RunE: func(cmd *cobra.Command, args []string) error {
			who, err := by.by(p)
			if err != nil {
				return err
			}
			return withRegistry(cmd, p, func(r *callers.Registry) error {
				issued, err := r.Rotate(cmd.Context(), who, args[0], credential, keep)
				if err != nil {
					return err
				}
				return show(cmd, issued, issuedTable)
			})
		},
	}
	cmd.Flags().StringVar(&credential, "credential", callers.DefaultCredential, "name of the credential, where a caller has several")
	cmd.Flags().DurationVar(&keep, "keep", 24*time.Hour, "how long the old key still counts; 0 ends it now")
	by.offer(cmd)
	offerOutput(cmd)
	offer(cmd, config.GroupPostgres)
	return cmd
}

func newCallersRevoke(p process) *cobra.Command {
	var by byFlags
	var what callers.What
	cmd := &cobra.Command{
		Use: "revoke CALLER", Short: "End a key, a credential, or a caller, now",
		Example: "  settleonce callers revoke shop --key ID                 one key, as `callers list` names it\n" +
			"  settleonce callers revoke shop --credential mobile      all keys of a credential\n" +
			"  settleonce callers revoke shop --all                    everything: shut the caller out",
		Long: "The edge refuses the keys within 5 seconds. With --all and callers-from=database the consumers take no\n" +
			"command of the caller any more, also none that is in Kafka already. Payments under way are settled.",
		Args: oneCaller,
		RunE: func(cmd *cobra.Command, args []string) error {
			who, err := by.by(p)
			if err != nil {
				return err
			}
			if countTrue(what.Key != "", what.Credential != "", what.All) != 1 {
				return asUsage(errors.New("say what to revoke, one of: --key ID, --credential NAME, --all"))
			}
			return withRegistry(cmd, p, func(r *callers.Registry) error {
				ended, err := r.Revoke(cmd.Context(), who, args[0], what)
				if err != nil {
					return err
				}
				return show(cmd, revoked{Caller: args[0], Keys: ended, ShutOut: what.All}, func(t *table, r revoked) { r.row(t) })
			})
		},
	}
	cmd.Flags().StringVar(&what.Key, "key", "", "id of the key")
	cmd.Flags().StringVar(&what.Credential, "credential", "", "name of the credential")
	cmd.Flags().BoolVar(&what.All, "all", false, "the caller with everything")
	by.offer(cmd)
	offerOutput(cmd)
	offer(cmd, config.GroupPostgres)
	return cmd
}

func countTrue(conditions ...bool) int {
	n := 0
	for _, c := range conditions {
		if c {
			n++
		}
	}
	return n
}

// revoked is what -o json prints.
type revoked struct {
	Caller  string `json:"caller"`
	Keys    int64  `json:"revokedKeys"`
	ShutOut bool   `json:"shutOut"`
}

func (r revoked) row(t *table) {
	t.row("caller", r.Caller)
	t.row("keys revoked", r.Keys)
	if r.ShutOut {
		t.row("shut out", "until it is added again")
	}
}

func newSigningKey(process) *cobra.Command {
	var id string
	var everyone bool
	cmd := &cobra.Command{
		Use: "signing-key [CALLER...]", Short: "Make a key that signs commands on Kafka",
		Example: "  settleonce callers signing-key shop shop-cron >> signing-keys\n" +
			"  settleonce callers signing-key --id edge-1 --everyone >> signing-keys     for the HTTP edge",
		Long: "Prints a line for the file that signing-keys-file names: id, callers, secret. The consumer and whoever signs\n" +
			"need the same line; nobody else may read it. It is not stored anywhere else.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if everyone == (len(args) > 0) {
				return asUsage(errors.New("name the callers that the key may speak for, or --everyone for the HTTP edge's"))
			}
			if everyone {
				args = []string{signing.Everyone}
			}
			if id == "" {
				id = keyIDFor(args[0], time.Now())
			}
			key, err := signing.NewKey(id, args...)
			if err != nil {
				return asUsage(err)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), key.Line())
			return err
		},
	}
	cmd.Flags().StringVar(&id, "id", "", "name of the key in signatures (default: the first caller and the day)")
	cmd.Flags().BoolVar(&everyone, "everyone", false, "the key may speak for every caller")
	return cmd
}

func keyIDFor(caller string, now time.Time) string {
	if caller == signing.Everyone {
		caller = "edge"
	}
	return caller + "-" + now.UTC().Format("20060102")
}

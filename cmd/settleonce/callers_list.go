package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/callers"
	"github.com/settleonce/settleonce/internal/config"
)

func newCallersList(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List the callers and the ids of their keys",
		Example: "  settleonce callers list\n  settleonce callers list -o json",
		Long: "States of keys: valid; expiring, which counts until the time shown; expired; revoked. The keys themselves\n" +
			"are not stored and cannot be listed.",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withRegistry(cmd, p, func(r *callers.Registry) error {
				entries, err := r.List(cmd.Context())
				if err != nil {
					return err
				}
				views := make([]callerView, 0, len(entries)) // [] in JSON, never null
				for _, e := range entries {
					views = append(views, viewOfCaller(e))
				}
				return show(cmd, views, callersTable)
			})
		},
	}
	offerOutput(cmd)
	offer(cmd, config.GroupPostgres)
	return cmd
}

func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%q is too much: give no argument", args[0])
	}
	return nil
}

// callerView is a caller as -o json prints it.
type callerView struct {
	Caller          string        `json:"caller"`
	Namespace       string        `json:"namespace"`
	Rate            float64       `json:"ratePerSecond"`
	Burst           int           `json:"burst"`
	RequireIssuedAt bool          `json:"requireIssuedAt"`
	GraceUntil      *time.Time    `json:"graceUntil,omitempty"`
	ShutOut         bool          `json:"shutOut"`
	Keys            []callers.Key `json:"keys,omitempty"`
}

func viewOfCaller(e callers.Entry) callerView {
	v := callerView{
		Caller: e.Name, Namespace: e.Namespace, Rate: e.Rate, Burst: e.Burst, RequireIssuedAt: e.RequireIssuedAt, ShutOut: e.Revoked, Keys: e.Keys,
	}
	if !e.GraceUntil.IsZero() {
		v.GraceUntil = &e.GraceUntil
	}
	return v
}

// limit is the rate limit in words.
func (v callerView) limit() string {
	if v.Rate == 0 {
		return "-"
	}
	return fmt.Sprintf("%g/s, %d at once", v.Rate, v.Burst)
}

// flags are what is special about the caller, in words.
func (v callerView) flags() string {
	text := ""
	add := func(when bool, words string) {
		if when && text != "" {
			text += "; "
		}
		if when {
			text += words
		}
	}
	add(v.ShutOut, "shut out")
	add(v.RequireIssuedAt, "needs issuedAt")
	if v.GraceUntil != nil {
		add(true, "no key needed until "+shortTime(*v.GraceUntil))
	}
	if text == "" {
		return "-"
	}
	return text
}

func shortTime(at time.Time) string { return at.UTC().Format(time.RFC3339) }

func (v callerView) fill(t *table) {
	t.row("caller", v.Caller)
	t.row("namespace", v.Namespace)
	t.row("limit", v.limit())
	t.row("flags", v.flags())
}

func callersTable(t *table, views []callerView) {
	if len(views) == 0 {
		t.row("there are no callers: add one with `settleonce callers add NAME`")
		return
	}
	t.row("CALLER", "NAMESPACE", "LIMIT", "FLAGS", "")
	for _, v := range views {
		t.row(v.Caller, v.Namespace, v.limit(), v.flags())
	}
	t.row("")
	t.row("KEY", "CALLER", "CREDENTIAL", "STATE", "CREATED", "UNTIL")
	for _, v := range views {
		for _, k := range v.Keys {
			t.row(k.ID, v.Caller, k.Credential, k.State, shortTime(k.CreatedAt), keyEnd(k))
		}
	}
}

func keyEnd(k callers.Key) string {
	switch {
	case k.RevokedAt != nil:
		return shortTime(*k.RevokedAt)
	case k.ExpiresAt != nil:
		return shortTime(*k.ExpiresAt)
	default:
		return "-"
	}
}

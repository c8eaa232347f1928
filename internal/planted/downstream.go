package planted

// downstream are bugs in the inbox of services downstream (G5, G7).
var downstream = []Bug{
	{
		Name: "inbox-marker-in-its-own-transaction", Guarantee: "G7",
		What: "the inbox commits its marker before the effect: who dies between them never does the work",
		File: "consumer/inbox/apply.go", Guard: "Inbox.apply",
		Old: "\tif err := a.mark(ctx, tx); err != nil {\n\t\treturn notOurs, err\n\t}\n",
		New: `	if err := a.mark(ctx, tx); err != nil {
		return notOurs, err
	}
	if err := tx.Commit(ctx); err != nil {
		return notOurs, err
	}
	if tx, err = in.cfg.Pool.BeginTx(ctx, pgx.TxOptions{}); err != nil {
		return notOurs, err
	}
`,
		Test:    "./consumer/inbox -run TestB13_",
		Torture: "--seed 8 --payments 500 --faults crash,reset",
		Shows:   []string{"G5"},
	},
	{
		Name: "inbox-repeat-applied", Guarantee: "G7",
		What: "the inbox hands a message that has a marker to the handler again",
		File: "consumer/inbox/apply.go", Guard: "attempt.handle",
		Old:     "if !a.fresh[m.ID] {\n\t\t\tcontinue",
		New:     "if a.fresh == nil {\n\t\t\tcontinue",
		Test:    "./consumer/inbox -run TestB14_",
		Torture: "--seed 8 --payments 500 --faults reset",
	},
	{
		Name: "inbox-finished-before-applied", Guarantee: "G5",
		What: "the inbox lets the offset be committed before the effect is",
		File: "consumer/inbox/inbox.go", Guard: "Inbox.handle",
		Old:   "bad, err := in.apply(ctx, chunk)\n",
		New:   "kafka.Finish(chunk)\n\t\tbad, err := in.apply(ctx, chunk)\n",
		Model: "group -DCLAIMFIRST=0", Test: "./consumer/inbox -run TestB13_Stopped",
	},
}

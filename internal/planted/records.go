package planted

// records are bugs that lose records, or take ones that are none (G5, G6, G7, G16).
var records = []Bug{
	{
		Name: "offset-past-a-hole", Guarantee: "G5",
		What: "the offset is committed past records that are not finished",
		File: "internal/kafka/tracker.go", Guard: "tracker.advance",
		Old:   "for t.head < len(t.entries) && t.entries[t.head].finished {",
		New:   "for t.head < len(t.entries) {",
		Model: "group -DHOLE=0", Test: "./internal/kafka -run TestTrackerModel",
	},
	{
		Name: "dead-letter-dropped", Guarantee: "G5",
		What: "a record that cannot be read is skipped",
		File: "internal/store/judge.go", Guard: "claimRun.judge",
		Old:     "run.messages = append(run.messages, deadLetter(run.topics, a, *a.Dead))",
		New:     "_ = deadLetter",
		Torture: "--seed 8 --payments 500 --faults replay --patience 45s",
	},
	{
		Name: "dead-letter-changed", Guarantee: "G5",
		What: "a dead letter is not the record that came",
		File: "internal/store/judge.go", Guard: "deadLetter",
		Old:     "Key: a.Raw.Key, Type: \"payment.deadletter\", Payload: a.Raw.Value, Headers: headers,",
		New:     "Key: a.Raw.Key, Type: \"payment.deadletter\", Payload: append([]byte(nil), a.Raw.Value...)[:len(a.Raw.Value)/2], Headers: headers,",
		Test:    "./internal/e2e -run TestB17_BadInput",
		Torture: "--seed 4 --payments 600 --faults channel",
	},
	{
		Name: "no-sweep", Guarantee: "G5",
		What: "payments of dead workers are never picked",
		File: "internal/store/due.go", Guard: "Store.PickDue",
		Old:     "WHERE next_check_at <= statement_timestamp() - $3::interval AND lease_until",
		New:     "WHERE next_check_at <= statement_timestamp() - $3::interval - interval '1 day' AND lease_until",
		Torture: "--seed 4 --payments 500 --faults kill,channel --patience 45s", Test: "./internal/store -run TestPickDue",
	},
	{
		Name: "marked-before-published", Guarantee: "G5",
		What: "the relay marks a row before Kafka has it",
		File: "outbox/lane.go", Guard: "lane.cycle",
		Old: "if published > 0 {\n\t\tl.publish(ctx, picked)",
		New: `if published > 0 {
		for _, p := range picked {
			for i := range p.rows {
				l.open.published(p.shard, &p.rows[i])
			}
		}
		l.exchange(context.WithoutCancel(ctx), work)
		l.publish(ctx, picked)`,
		Model: "relay -DMARKFIRST", Test: "./outbox -run TestB3_LateMarkChangesNothing",
	},
	{
		Name: "outcome-without-message", Guarantee: "G5",
		What: "an outcome is stored, and nobody hears of it",
		File: "internal/store/apply_sql.go", Guard: "changes.queue",
		Old:     "if len(w.messages) > 0 {\n\t\toutbox.Queue(b, w.messages)",
		New:     "if len(w.messages) > 3 {\n\t\toutbox.Queue(b, w.messages)",
		Torture: "--seed 8 --payments 500 --faults replay --patience 45s", Shows: []string{"G7"},
	},
	{
		Name: "lower-offset-ignored", Guarantee: "G5",
		What: "Kafka's offset wins over a lower one in the database: a lost claim is not delivered again",
		File: "internal/store/offsets.go", Guard: "Store.StartOffset",
		Old:   "return stored, nil\n}",
		New:   "return committed, nil\n}",
		Model: "settle -DLOWER=0 -DAMNESIA", Test: "./internal/store -run TestStartOffset",
	},

	{
		Name: "finished-before-claimed", Guarantee: "G6",
		What: "the offset may be committed before the claim is",
		File: "consumer/lane.go", Guard: "lane.claim",
		Old:   "batch := l.rest[:n]\n",
		New:   "batch := l.rest[:n]\n\tkafka.Finish(batch)\n",
		Model: "group -DCLAIMFIRST=0",
	},

	{
		Name: "transaction-split", Guarantee: "G7",
		What: "what is read and what is written are two transactions",
		File: "internal/store/store.go", Guard: "Store.inTx",
		Old:     "first.Queue(\"begin\")",
		New:     "first.Queue(\"select 1\")",
		Test:    "./internal/store -run TestB20_|TestClaimCommitLost|TestApplyFromManyWorkers",
		Torture: "--seed 8 --payments 1500 --faults backends,commit-lost,crash,kill",
		Shows:   []string{"G10"},
	},
	{
		Name: "messages-after-the-commit", Guarantee: "G7",
		What: "outbox rows are written in a second transaction",
		File: "internal/store/apply_sql.go", Guard: "changes.queue",
		Old: "if len(w.messages) > 0 {\n\t\toutbox.Queue(b, w.messages)",
		New: "if len(w.messages) < 0 {\n\t\toutbox.Queue(b, w.messages)",
		Also: []Edit{{
			File: "internal/store/apply.go",
			Old:  "if len(w.messages) > 0 {\n\t\ts.wake()",
			New: `if len(w.messages) > 0 {
		err := s.inTx(ctx, func(*pgx.Batch) {}, func(b *pgx.Batch) error {
			outbox.Queue(b, w.messages)
			return nil
		})
		if err != nil {
			return err
		}
		s.wake()`,
		}},
		Model: "settle -DTOGETHER=0", Test: "./internal/store -run TestApplyCommitLost",
		Torture: "--seed 8 --payments 2500 --faults crash,kill,backends",
		Shows:   []string{"G5"},
	},
	{
		Name: "one-message-per-batch", Guarantee: "G7",
		What: "of the messages of a transaction only the first is written",
		File: "outbox/enqueue.go", Guard: "Queue",
		Old:     "b.Queue(insertSQL, insertArgs(messages)...)",
		New:     "b.Queue(insertSQL, insertArgs(messages[:1])...)",
		Torture: "--seed 8 --payments 500 --faults replay --patience 45s", Shows: []string{"G5"},
	},

	{
		Name: "aborted-not-filtered", Guarantee: "G16",
		What: "records of aborted transactions are processed",
		File: "internal/kafka/fetch.go", Guard: "decoder.batch",
		Old:     "return d.records(b, b.Attributes.Transactional() && d.aborted[b.ProducerID])",
		New:     "return d.records(b, false)",
		Torture: "--seed 8 --payments 500 --faults replay",
	},
	{
		Name: "abort-never-ends", Guarantee: "G16",
		What: "after an abort the producer's committed transactions are dropped too",
		File: "internal/kafka/fetch.go", Guard: "decoder.control",
		Old:     "delete(d.aborted, b.ProducerID)",
		New:     "_ = b.ProducerID",
		Test:    "./internal/kafka -run TestConformanceKfake",
		Torture: "--seed 8 --payments 500 --faults replay --patience 45s",
		Shows:   []string{"G5"},
	},
}

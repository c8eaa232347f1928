package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/settleonce/settleonce/payment"
)

// Operator is who does something by hand, and why. Both are required.
type Operator struct {
	Actor, Reason string
}

// Validate reports what is missing.
func (o Operator) Validate() error {
	if o.Actor == "" || o.Reason == "" {
		return errors.New("say who does it and why: --actor NAME --reason TEXT")
	}
	return nil
}

// Foreseen is what a command would be told if it were delivered now.
type Foreseen string

// The answers that a replay foresees.
const (
	ForeseenFresh    Foreseen = "fresh"    // its key is not known: it would be charged
	ForeseenReplayed Foreseen = "replayed" // it has an end, which is repeated
	ForeseenPending  Foreseen = "pending"  // it is under way
	ForeseenConflict Foreseen = "conflict" // its key is known with other content
	ForeseenStale    Foreseen = "stale"    // its key is not known, and it is too old
	ForeseenRefused  Foreseen = "refused"  // its key is not known, and it is invalid or issued in the future
	ForeseenDead     Foreseen = "dead"     // it is no command that can be answered
)

// Foresee says what each command would be told, without telling it: by key, state
// and age, in one round trip. It does not look at obligations, so a fresh command
// may still be refused because of another payment.
func (s *Store) Foresee(ctx context.Context, commands []payment.Command, freshness payment.Freshness) ([]Foreseen, error) {
	ids := make([]uuid.UUID, len(commands))
	for i := range commands {
		ids[i] = commands[i].Identity().PaymentID()
	}
	found, err := s.Read(ctx, ids)
	if err != nil {
		return nil, err
	}
	var now time.Time
	if err := s.pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now); err != nil {
		return nil, fmt.Errorf("read the database's clock: %w", err)
	}
	known := make(map[uuid.UUID]*Payment, len(found))
	for i := range found {
		known[found[i].Payment.ID] = &found[i].Payment
	}
	out := make([]Foreseen, len(commands))
	for i := range commands {
		out[i] = foresee(&commands[i], known[ids[i]], now, freshness)
	}
	return out, nil
}

func foresee(c *payment.Command, p *Payment, now time.Time, freshness payment.Freshness) Foreseen {
	if p == nil {
		switch freshness.Judge(c.IssuedAt, now) {
		case payment.CodeStaleCommand:
			return ForeseenStale
		case "":
			return ForeseenFresh
		default:
			return ForeseenRefused
		}
	}
	fingerprint, err := c.Fingerprint()
	switch {
	case err != nil || !p.Fingerprint.Matches(c, fingerprint):
		return ForeseenConflict
	case p.State.Terminal():
		return ForeseenReplayed
	default:
		return ForeseenPending
	}
}

// Replay is one replay of records into their own topic.
type Replay struct {
	ID    uuid.UUID `json:"id"`
	Topic string    `json:"topic"`
	// Selection is what was asked for, in the words of who asked.
	Selection json.RawMessage `json:"selection"`
	// Positions says per partition where to go on and where to end.
	Positions map[int]Span `json:"positions"`
	// Published counts the records that were published so far.
	Published int64 `json:"published"`
	// State is running, stopped or done.
	State string `json:"state"`
	Operator
}

// Span is a part of a partition: from an offset up to, not including, another.
type Span struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// The states of a replay.
const (
	ReplayRunning = "running"
	ReplayStopped = "stopped"
	ReplayDone    = "done"
)

// ErrNoReplay says that there is no replay of this id.
var ErrNoReplay = errors.New("there is no replay with this id")

// BeginReplay writes down that a replay begins, and by whom.
func (s *Store) BeginReplay(ctx context.Context, r *Replay) error {
	positions, err := json.Marshal(r.Positions)
	if err != nil {
		return fmt.Errorf("write the replay's positions: %w", err)
	}
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if err := audit(ctx, tx, r.Actor, "replay", r.Reason, map[string]any{"id": r.ID, "topic": r.Topic, "selection": r.Selection}); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO settleonce.replays (id, topic, selection, positions, state, actor, reason)
			VALUES ($1, $2, $3, $4, $5, $6, $7)`, pgUUID(r.ID), r.Topic, r.Selection, positions, ReplayRunning, clean(r.Actor), clean(r.Reason))
		return err
	})
	if err != nil {
		return fmt.Errorf("begin the replay: %w", err)
	}
	return nil
}

// KeepReplay writes down how far a replay came.
func (s *Store) KeepReplay(ctx context.Context, r *Replay) error {
	positions, err := json.Marshal(r.Positions)
	if err != nil {
		return fmt.Errorf("write the replay's positions: %w", err)
	}
	_, err = s.pool.Exec(ctx, `UPDATE settleonce.replays SET positions = $2, published = $3, state = $4, updated_at = clock_timestamp() WHERE id = $1`,
		pgUUID(r.ID), positions, r.Published, r.State)
	if err != nil {
		return fmt.Errorf("keep the replay's progress: %w", err)
	}
	return nil
}

// FindReplay returns a replay, or ErrNoReplay.
func (s *Store) FindReplay(ctx context.Context, id uuid.UUID) (Replay, error) {
	r := Replay{ID: id}
	var positions []byte
	err := s.pool.QueryRow(ctx, `SELECT topic, selection, positions, published, state, actor, reason FROM settleonce.replays WHERE id = $1`, pgUUID(id)).
		Scan(&r.Topic, &r.Selection, &positions, &r.Published, &r.State, &r.Actor, &r.Reason)
	if errors.Is(err, pgx.ErrNoRows) {
		return r, ErrNoReplay
	}
	if err != nil {
		return r, fmt.Errorf("read the replay: %w", err)
	}
	if err := json.Unmarshal(positions, &r.Positions); err != nil {
		return r, fmt.Errorf("read the replay's positions: %w", err)
	}
	return r, nil
}

// AuditReset writes down that the offsets of a group were set back.
func (s *Store) AuditReset(ctx context.Context, by Operator, group, topic string, from, to map[int]int64) error {
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		return audit(ctx, tx, by.Actor, "reset-offsets", by.Reason, map[string]any{"group": group, "topic": topic, "from": from, "to": to})
	})
	if err != nil {
		return fmt.Errorf("write down the reset: %w", err)
	}
	return nil
}

// Letter is what was done with one dead letter.
type Letter struct {
	Partition int   `json:"partition"`
	Offset    int64 `json:"offset"`
	// State is redriving, redriven or discarded.
	State string `json:"state"`
	// Edited says that another body was published in place of the original.
	Edited bool      `json:"edited"`
	Actor  string    `json:"actor"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// The states of a dead letter that was dealt with.
const (
	LetterRedriving = "redriving" // it may have been published: a tool was interrupted
	LetterRedriven  = "redriven"
	LetterDiscarded = "discarded"
)

// Letters returns what was done with the dead letters of a topic, by partition and
// offset.
func (s *Store) Letters(ctx context.Context, topic string) (map[Span]Letter, error) {
	rows, err := s.pool.Query(ctx, `SELECT partition, "offset", state, edited, actor, reason, at FROM settleonce.dead_letters WHERE topic = $1`, topic)
	if err != nil {
		return nil, fmt.Errorf("read what was done with dead letters: %w", err)
	}
	letters, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Letter])
	if err != nil {
		return nil, fmt.Errorf("read what was done with dead letters: %w", err)
	}
	out := make(map[Span]Letter, len(letters))
	for _, l := range letters {
		out[LetterKey(l.Partition, l.Offset)] = l
	}
	return out, nil
}

// LetterKey is the key of a dead letter in what Letters returns.
func LetterKey(partition int, offset int64) Span { return Span{From: int64(partition), To: offset} }

// LetterChange is what an operator does with one dead letter.
type LetterChange struct {
	Topic     string
	Partition int
	Offset    int64
	// State to bring it to: LetterRedriving, LetterRedriven or LetterDiscarded.
	State string
	// Original and Replacement are the bodies of an edited one.
	Original, Replacement []byte
}

// ErrDealtWith says that a dead letter was redriven or discarded before.
var ErrDealtWith = errors.New("the dead letter was dealt with before")

// ClaimLetter writes down what is about to be done with a dead letter, with the
// audit, before it is done. One that was redriven or discarded before is refused
// with ErrDealtWith and what was done; an interrupted redrive may be done again.
func (s *Store) ClaimLetter(ctx context.Context, by Operator, c LetterChange) error {
	edited := c.Replacement != nil
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `INSERT INTO settleonce.dead_letters AS d (topic, partition, "offset", state, edited, original, replacement, actor, reason)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (topic, partition, "offset") DO UPDATE SET state = EXCLUDED.state, edited = EXCLUDED.edited,
			original = EXCLUDED.original, replacement = EXCLUDED.replacement, actor = EXCLUDED.actor, reason = EXCLUDED.reason, at = clock_timestamp()
			WHERE d.state = 'redriving'`, c.Topic, c.Partition, c.Offset, c.State, edited, c.Original, c.Replacement, clean(by.Actor), clean(by.Reason))
		if err != nil {
			return fmt.Errorf("claim the dead letter: %w", err)
		}
		if tag.RowsAffected() == 0 {
			return s.dealtWith(ctx, tx, c)
		}
		action := "deadletter-redrive"
		if c.State == LetterDiscarded {
			action = "deadletter-discard"
		}
		return audit(ctx, tx, by.Actor, action, by.Reason, map[string]any{"topic": c.Topic, "partition": c.Partition, "offset": c.Offset, "edited": edited})
	})
}

func (s *Store) dealtWith(ctx context.Context, tx pgx.Tx, c LetterChange) error {
	var state, actor string
	var at pgtype.Timestamptz
	err := tx.QueryRow(ctx, `SELECT state, actor, at FROM settleonce.dead_letters WHERE topic = $1 AND partition = $2 AND "offset" = $3`,
		c.Topic, c.Partition, c.Offset).Scan(&state, &actor, &at)
	if err != nil {
		return fmt.Errorf("read the dead letter's state: %w", err)
	}
	return fmt.Errorf("%w: %s by %s at %s", ErrDealtWith, state, actor, at.Time.UTC().Format(time.RFC3339))
}

// EndLetter writes down that a redrive was done.
func (s *Store) EndLetter(ctx context.Context, topic string, partition int, offset int64) error {
	_, err := s.pool.Exec(ctx, `UPDATE settleonce.dead_letters SET state = 'redriven' WHERE topic = $1 AND partition = $2 AND "offset" = $3`, topic, partition, offset)
	if err != nil {
		return fmt.Errorf("mark the dead letter as redriven: %w", err)
	}
	return nil
}

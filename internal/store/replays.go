package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/settleonce/settleonce/payment"
)

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
	Operator

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

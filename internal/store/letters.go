package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

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

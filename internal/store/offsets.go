package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// upsertOffset never goes back: a late claim of a former owner must not make it
// look as if commits were lost.
const upsertOffset = `
INSERT INTO settleonce.consumed_offsets (consumer_group, topic, partition, next_offset)
SELECT $1, u.topic, u.part, u.next FROM unnest($2::text[], $3::int[], $4::bigint[]) AS u(topic, part, next) ORDER BY 2, 3
ON CONFLICT (consumer_group, topic, partition)
DO UPDATE SET next_offset = greatest(consumed_offsets.next_offset, excluded.next_offset)`

func queueOffsets(b *pgx.Batch, group string, next map[Partition]int64) {
	if len(next) == 0 {
		return
	}
	topics, partitions, offsets := make([]string, 0, len(next)), make([]int32, 0, len(next)), make([]int64, 0, len(next))
	for p, offset := range next {
		topics, partitions, offsets = append(topics, p.Topic), append(partitions, int32(p.Number)), append(offsets, offset)
	}
	b.Queue(upsertOffset, group, topics, partitions, offsets)
}

// StartOffset decides where a group goes on in a partition, given the offset
// committed to Kafka (-1: none): the lower of it and the stored one. A stored one
// behind Kafka's means that commits were lost; the installation is then marked
// suspect, and until an operator acknowledges it (settleonce recover) no new
// payment is sent before its provider was asked.
func (s *Store) StartOffset(ctx context.Context, group string, p Partition, committed int64) (int64, error) {
	var stored int64
	err := s.pool.QueryRow(ctx, `SELECT next_offset FROM settleonce.consumed_offsets
		WHERE consumer_group = $1 AND topic = $2 AND partition = $3`, group, p.Topic, p.Number).Scan(&stored)
	switch {
	case errors.Is(err, pgx.ErrNoRows) && committed <= 0:
		return committed, nil
	case errors.Is(err, pgx.ErrNoRows):
		stored = 0
	case err != nil:
		return 0, fmt.Errorf("read the stored offset of %s/%d: %w", p.Topic, p.Number, err)
	}
	if stored >= committed {
		return committed, nil
	}
	reason := fmt.Sprintf("%s/%d: the database knows offset %d, Kafka was told %d", p.Topic, p.Number, stored, committed)
	if err := s.MarkSuspect(ctx, reason); err != nil {
		return 0, err
	}
	return stored, nil
}

// Installation says which database this is.
type Installation struct {
	// Suspect is why commits may have been lost; empty when all is well.
	Suspect string
	// Shards is the number of outbox shards, fixed at installation.
	Shards int
}

// Which server and timeline this is now.
const (
	serverNow   = `(SELECT system_identifier FROM pg_control_system())`
	timelineNow = `('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint`
)

// mayHaveLostCommits is asked inside the transactions that claim and permit: a
// worker whose database fails over goes on with the promoted one at once.
const mayHaveLostCommits = `(SELECT i.suspect <> '' OR i.system_identifier <> ` + serverNow + ` OR i.timeline <> ` + timelineNow + `
    FROM settleonce.installation i)`

// CheckInstallation compares the database with the one that was installed. When
// the server's identifier or timeline changed (a restore, a promoted standby),
// commits may be lost, and the installation is marked suspect.
func (s *Store) CheckInstallation(ctx context.Context) (Installation, error) {
	const check = `
SELECT suspect, CASE
    WHEN suspect <> '' THEN suspect
    WHEN system_identifier <> now_id THEN format('the database is another server: %s, was %s', now_id, system_identifier)
    WHEN timeline <> now_line THEN format('the database was restored or promoted: timeline %s, was %s', now_line, timeline)
    ELSE '' END, shards
FROM settleonce.installation, (SELECT ` + serverNow + ` AS now_id, ` + timelineNow + ` AS now_line) AS n`
	var i Installation
	var known string
	if err := s.pool.QueryRow(ctx, check).Scan(&known, &i.Suspect, &i.Shards); err != nil {
		return i, fmt.Errorf("check the installation: %w", err)
	}
	if i.Suspect == known {
		return i, nil
	}
	return i, s.MarkSuspect(ctx, i.Suspect)
}

// MarkSuspect records why commits may have been lost. The first reason stays.
func (s *Store) MarkSuspect(ctx context.Context, reason string) error {
	_, err := s.pool.Exec(ctx, `UPDATE settleonce.installation SET suspect = $1 WHERE suspect = ''`, clean(reason))
	if err != nil {
		return fmt.Errorf("mark the installation suspect: %w", err)
	}
	s.log.Error().Str("reason", reason).Msg("commits may be lost: nothing new is sent before its provider was asked; see settleonce recover")
	return nil
}

// Recover acknowledges that commits may have been lost: the database as it is
// becomes the known one. It returns what was suspected and leaves an audit row;
// when nothing was, it changes nothing.
func (s *Store) Recover(ctx context.Context, actor, reason string) (string, error) {
	if _, err := s.CheckInstallation(ctx); err != nil {
		return "", err
	}
	var suspect string
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, `SELECT suspect FROM settleonce.installation FOR UPDATE`).Scan(&suspect); err != nil {
			return err
		}
		if suspect == "" {
			return nil
		}
		if _, err := tx.Exec(ctx, `UPDATE settleonce.installation SET suspect = '',
			system_identifier = `+serverNow+`, timeline = `+timelineNow); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO settleonce.audit (actor, action, reason, detail)
			VALUES ($1, 'recover', $2, json_build_object('suspect', $3::text))`, actor, reason, suspect)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("acknowledge lost commits: %w", err)
	}
	return suspect, nil
}

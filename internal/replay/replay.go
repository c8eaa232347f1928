// Package replay brings records that are in Kafka already to their readers once
// more: published again into their own topic, or by setting back the offsets of a
// consumer group.
//
// A replay is safe by design, not by care: a command whose key is known gets its
// first outcome again, without a call to the provider (G2), and an inbox drops
// messages that it has applied. Still nothing happens before somebody has seen
// what would happen, and everything is written down.
package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// Header names the replay in every record that it publishes.
const Header = "settleonce_replay"

// Selection says which records. What is left out does not restrict.
type Selection struct {
	// Topic to read, with its prefix. Required.
	Topic string `json:"topic"`
	// Since and Until bound the records' timestamps; Until is not included.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
	// Offsets are parts of partitions; other partitions are left out.
	Offsets map[int]store.Span `json:"offsets,omitempty"`
	// Key is the record's key, in whatever case.
	Key string `json:"key,omitempty"`
	// Caller and Order are those of the body.
	Caller string `json:"caller,omitempty"`
	Order  string `json:"order,omitempty"`
}

// Validate reports the first part that cannot be meant.
func (s *Selection) Validate() error {
	switch {
	case s.Topic == "":
		return errors.New("name the --topic to replay")
	case !s.Since.IsZero() && !s.Until.IsZero() && !s.Since.Before(s.Until):
		return fmt.Errorf("the time range ends before it starts: --since %s, --until %s", s.Since.Format(time.RFC3339), s.Until.Format(time.RFC3339))
	case len(s.Offsets) > 0 && (!s.Since.IsZero() || !s.Until.IsZero()):
		return errors.New("choose by --offsets or by time, not by both")
	}
	for partition, span := range s.Offsets {
		if span.From < 0 || span.To <= span.From {
			return fmt.Errorf("the offsets of partition %d end before they start: %d to %d", partition, span.From, span.To)
		}
	}
	return nil
}

// filtered reports whether bodies or keys decide.
func (s *Selection) filtered() bool { return s.Key != "" || s.Caller != "" || s.Order != "" }

// matches decides about one record.
func (s *Selection) matches(r *kafka.Record) bool {
	if s.Key != "" && !strings.EqualFold(s.Key, string(r.Key)) {
		return false
	}
	if s.Caller == "" && s.Order == "" {
		return true
	}
	var body struct {
		Caller  string `json:"caller"`
		OrderID string `json:"orderId"`
	}
	if err := json.Unmarshal(r.Value, &body); err != nil {
		return false
	}
	return (s.Caller == "" || s.Caller == body.Caller) && (s.Order == "" || s.Order == body.OrderID)
}

// Config is what replays need.
type Config struct {
	Kafka *kafka.Client
	Store *store.Store
	// Commands are the command topics: only their records are judged.
	Commands []string
	// Freshness decides what would be stale.
	Freshness payment.Freshness
	// Progress is told how many records of all were looked at; nil for nobody.
	Progress func(looked, all int64)
}

// Player replays.
type Player struct{ cfg Config }

// New returns a Player.
func New(cfg Config) *Player {
	if cfg.Progress == nil {
		cfg.Progress = func(int64, int64) {}
	}
	return &Player{cfg: cfg}
}

// Preview is what a replay would do.
type Preview struct {
	Topic string `json:"topic"`
	// Spans are what is read, by partition; Records how many records that is at
	// most, Matching how many of them were chosen.
	Spans    map[int]store.Span `json:"spans"`
	Records  int64              `json:"records"`
	Matching int64              `json:"matching"`
	// Commands counts, for command topics, what the chosen records would be told.
	Commands map[store.Foreseen]int64 `json:"commands,omitempty"`
	// Types counts the chosen records of other topics by ce_type.
	Types map[string]int64 `json:"types,omitempty"`
}

// Spans finds the parts of the topic's partitions that the selection names, as
// they are now: what a replay itself publishes lies behind them.
func (p *Player) Spans(ctx context.Context, s *Selection) (map[int]store.Span, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	from, err := p.cfg.Kafka.StartOffsets(ctx, s.Topic)
	if err != nil {
		return nil, err
	}
	to, err := p.cfg.Kafka.EndOffsets(ctx, s.Topic)
	if err != nil {
		return nil, err
	}
	if !s.Since.IsZero() {
		if from, err = p.cfg.Kafka.OffsetsAt(ctx, s.Topic, s.Since); err != nil {
			return nil, err
		}
	}
	if !s.Until.IsZero() {
		if to, err = p.cfg.Kafka.OffsetsAt(ctx, s.Topic, s.Until); err != nil {
			return nil, err
		}
	}
	spans := map[int]store.Span{}
	for partition := range to {
		span := store.Span{From: from[partition], To: to[partition]}
		if len(s.Offsets) > 0 {
			wanted, chosen := s.Offsets[partition]
			if !chosen {
				continue
			}
			span = store.Span{From: max(span.From, wanted.From), To: min(span.To, wanted.To)}
		}
		if span.From < span.To {
			spans[partition] = span
		}
	}
	for partition := range s.Offsets {
		if _, there := to[partition]; !there {
			return nil, fmt.Errorf("topic %s has no partition %d", s.Topic, partition)
		}
	}
	return spans, nil
}

// batchSize is how many records are judged or published at once.
const batchSize = 200

// Look says what a replay would do, and does nothing.
func (p *Player) Look(ctx context.Context, s *Selection) (Preview, error) {
	spans, err := p.Spans(ctx, s)
	if err != nil {
		return Preview{}, err
	}
	v := Preview{Topic: s.Topic, Spans: spans, Records: total(spans)}
	if slices.Contains(p.cfg.Commands, s.Topic) {
		v.Commands = map[store.Foreseen]int64{}
	} else {
		v.Types = map[string]int64{}
	}
	err = p.read(ctx, s, maps.Clone(spans), func(batch []kafka.Record) error {
		v.Matching += int64(len(batch))
		if v.Types != nil {
			for i := range batch {
				v.Types[header(&batch[i], "ce_type")]++
			}
			return nil
		}
		return p.foresee(ctx, batch, v.Commands)
	}, func() error { return nil })
	return v, err
}

func (p *Player) foresee(ctx context.Context, batch []kafka.Record, into map[store.Foreseen]int64) error {
	var commands []payment.Command
	for i := range batch {
		decoded := payment.Decode(batch[i].Value)
		switch {
		case !decoded.Identified || !decoded.KeyMatches(batch[i].Key):
			into[store.ForeseenDead]++
		case decoded.Err != nil:
			into[store.ForeseenRefused]++
		default:
			commands = append(commands, decoded.Command)
		}
	}
	told, err := p.cfg.Store.Foresee(ctx, commands, p.cfg.Freshness)
	for _, f := range told {
		into[f]++
	}
	return err
}

// read hands out the chosen records of the spans in batches. Only when a batch was
// taken is it cut off from what is left; then moved is called.
func (p *Player) read(ctx context.Context, s *Selection, left map[int]store.Span, take func([]kafka.Record) error, moved func() error) error {
	all := total(left)
	looked := int64(0)
	for _, partition := range slices.Sorted(maps.Keys(left)) {
		var batch []kafka.Record
		flush := func(next int64) error {
			if len(batch) > 0 {
				if err := take(batch); err != nil {
					return err
				}
			}
			batch, left[partition] = batch[:0], store.Span{From: next, To: left[partition].To}
			p.cfg.Progress(looked, all)
			return moved()
		}
		span := left[partition]
		_, err := p.cfg.Kafka.ReadRange(ctx, s.Topic, partition, span.From, span.To, func(r kafka.Record) error {
			looked++
			if s.matches(&r) {
				batch = append(batch, r)
			}
			if len(batch) == batchSize || looked%5000 == 0 {
				return flush(r.Offset + 1)
			}
			return ctx.Err()
		})
		if err != nil {
			return err
		}
		if err := flush(span.To); err != nil {
			return err
		}
	}
	return nil
}

func total(spans map[int]store.Span) (n int64) {
	for _, s := range spans {
		n += s.To - s.From
	}
	return n
}

func header(r *kafka.Record, name string) string {
	for _, h := range slices.Backward(r.Headers) {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// Begin writes a replay down, ready to be run.
func (p *Player) Begin(ctx context.Context, s *Selection, by store.Operator) (store.Replay, error) {
	if err := by.Validate(); err != nil {
		return store.Replay{}, err
	}
	spans, err := p.Spans(ctx, s)
	if err != nil {
		return store.Replay{}, err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return store.Replay{}, fmt.Errorf("write the selection: %w", err)
	}
	r := store.Replay{ID: uuid.New(), Topic: s.Topic, Selection: text, Positions: spans, State: store.ReplayRunning, Operator: by}
	return r, p.cfg.Store.BeginReplay(ctx, &r)
}

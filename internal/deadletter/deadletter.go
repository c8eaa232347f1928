// Package deadletter is for people who look after the dead letters: it lists and
// shows them, sends them again, and notes which are done with.
//
// A dead letter stays in its topic, unchanged. Sending it again is as safe as any
// delivery: a known key gets its first outcome, a stale one is refused again, and
// an inbox drops what it has applied.
package deadletter

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// ID names a dead letter: its place in the dead-letter topic, as in 3-1042.
type ID struct {
	Partition int
	Offset    int64
}

// ParseID reads an ID.
func ParseID(text string) (ID, error) {
	left, right, _ := strings.Cut(text, "-")
	partition, err := strconv.Atoi(left)
	offset, err2 := strconv.ParseInt(right, 10, 64)
	if err != nil || err2 != nil || partition < 0 || offset < 0 {
		return ID{}, fmt.Errorf("%q is no dead letter: write its place, PARTITION-OFFSET, like 3-1042", text)
	}
	return ID{partition, offset}, nil
}

// String is the form that ParseID reads.
func (id ID) String() string { return fmt.Sprintf("%d-%d", id.Partition, id.Offset) }

// MarshalText makes JSON show what people write.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (id *ID) UnmarshalText(text []byte) (err error) {
	*id, err = ParseID(string(text))
	return err
}

// Letter is one dead letter.
type Letter struct {
	ID ID `json:"id"`
	// Reason and Error are why it could not be processed; Topic, Partition, Offset
	// and At are where it was then, and Consumer names the inbox that gave it up.
	Reason    string    `json:"reason"`
	Error     string    `json:"error"`
	Topic     string    `json:"topic"`
	Partition int       `json:"partition"`
	Offset    int64     `json:"offset"`
	At        time.Time `json:"at"`
	Consumer  string    `json:"consumer,omitempty"`
	Key       string    `json:"key"`
	// State is open until somebody has dealt with it; By, Why and Done say who, why
	// and when.
	State string     `json:"state"`
	By    string     `json:"by,omitempty"`
	Why   string     `json:"why,omitempty"`
	Done  *time.Time `json:"done,omitempty"`

	record kafka.Record
}

// StateOpen is the state of a letter that nobody has dealt with.
const StateOpen = "open"

// Value is the record's value, unchanged.
func (l *Letter) Value() []byte { return l.record.Value }

// Headers are the record's own, without those about its death.
func (l *Letter) Headers() map[string]string {
	out := map[string]string{}
	for _, h := range original(&l.record) {
		out[h.Key] = string(h.Value)
	}
	return out
}

// Filter says which letters; what is left out does not restrict.
type Filter struct {
	Reason, Topic string
	// Since and Until bound the time at which a letter was written.
	Since, Until time.Time
	// State is open, redriving, redriven or discarded; empty means open.
	State string
	// Any takes letters in every state.
	Any bool
	// IDs are the letters wanted, if any.
	IDs []ID
}

// Validate reports what cannot be meant.
func (f *Filter) Validate() error {
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		return errors.New("the time range ends before it starts: --since must be before --until")
	}
	if !slices.Contains([]string{"", StateOpen, store.LetterRedriving, store.LetterRedriven, store.LetterDiscarded}, f.State) {
		return fmt.Errorf("there is no state %q: use open, redriving, redriven or discarded", f.State)
	}
	return nil
}

func (f *Filter) matches(l *Letter) bool {
	state := f.State
	if state == "" {
		state = StateOpen
	}
	return (f.Any || l.State == state) && (f.Reason == "" || l.Reason == f.Reason) && (f.Topic == "" || l.Topic == f.Topic) &&
		(f.Until.IsZero() || l.record.Time.Before(f.Until)) && (len(f.IDs) == 0 || slices.Contains(f.IDs, l.ID))
}

// Config is what a Desk needs.
type Config struct {
	Kafka *kafka.Client
	Store *store.Store
	// Topic is the dead-letter topic, with its prefix.
	Topic string
	// Commands are the command topics: only what came from them can be edited.
	Commands []string
}

// Desk looks after the dead letters.
type Desk struct {
	cfg   Config
	trust bool
}

// New returns a Desk.
func New(cfg Config) *Desk { return &Desk{cfg: cfg} }

// TrustRemoved lets the Desk send what retention has removed from its topic, where
// nothing shows any more that the letter is what was there. Never a command.
func (d *Desk) TrustRemoved() { d.trust = true }

// ErrGone says that a letter is not in the topic any more, or never was.
var ErrGone = errors.New("the dead letter is not in the topic: it was removed by the topic's retention, or its place is wrong")

// Each calls fn for every letter that the filter names, oldest first within a
// partition.
func (d *Desk) Each(ctx context.Context, f *Filter, fn func(*Letter) error) error {
	if err := f.Validate(); err != nil {
		return err
	}
	done, err := d.cfg.Store.Letters(ctx, d.cfg.Topic)
	if err != nil {
		return err
	}
	spans, err := d.spans(ctx, f)
	if err != nil {
		return err
	}
	missing := map[ID]bool{}
	for _, id := range f.IDs {
		missing[id] = true
	}
	for _, at := range spans {
		_, err := d.cfg.Kafka.ReadRange(ctx, d.cfg.Topic, at.partition, at.From, at.To, func(r kafka.Record) error {
			l := read(&r)
			delete(missing, l.ID)
			if dealt, ok := done[store.LetterKey(r.Partition, r.Offset)]; ok {
				l.State, l.By, l.Why, l.Done = dealt.State, dealt.Actor, dealt.Reason, &dealt.At
			}
			if !f.matches(l) {
				return ctx.Err()
			}
			return fn(l)
		})
		if err != nil {
			return err
		}
	}
	for _, id := range f.IDs {
		if missing[id] {
			return fmt.Errorf("%s: %w", id, ErrGone)
		}
	}
	return nil
}

// span is a part of one partition.
type span struct {
	store.Span

	partition int
}

// spans are the parts of the topic that have to be read.
func (d *Desk) spans(ctx context.Context, f *Filter) ([]span, error) {
	if len(f.IDs) > 0 {
		var out []span
		for _, id := range f.IDs {
			out = append(out, span{store.Span{From: id.Offset, To: id.Offset + 1}, id.Partition})
		}
		return out, d.known(ctx, f.IDs)
	}
	to, err := d.cfg.Kafka.EndOffsets(ctx, d.cfg.Topic)
	if err != nil {
		return nil, err
	}
	from := map[int]int64{}
	if !f.Since.IsZero() {
		if from, err = d.cfg.Kafka.OffsetsAt(ctx, d.cfg.Topic, f.Since); err != nil {
			return nil, err
		}
	}
	var out []span
	for _, partition := range slices.Sorted(maps.Keys(to)) {
		out = append(out, span{store.Span{From: from[partition], To: to[partition]}, partition})
	}
	return out, nil
}

// known refuses partitions that the topic does not have.
func (d *Desk) known(ctx context.Context, ids []ID) error {
	ends, err := d.cfg.Kafka.EndOffsets(ctx, d.cfg.Topic)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if _, ok := ends[id.Partition]; !ok {
			return fmt.Errorf("%s: %w", id, ErrGone)
		}
	}
	return nil
}

// read makes a letter of a record. Headers that are missing stay empty: what is in
// the topic may be anybody's.
func read(r *kafka.Record) *Letter {
	l := &Letter{ID: ID{r.Partition, r.Offset}, State: StateOpen, Key: string(r.Key), record: *r, At: r.Time}
	for _, h := range r.Headers {
		value := string(h.Value)
		switch h.Key {
		case payment.DeadHeaderReason:
			l.Reason = value
		case payment.DeadHeaderError:
			l.Error = value
		case payment.DeadHeaderTopic:
			l.Topic = value
		case payment.DeadHeaderPartition:
			l.Partition, _ = strconv.Atoi(value)
		case payment.DeadHeaderOffset:
			l.Offset, _ = strconv.ParseInt(value, 10, 64)
		case payment.DeadHeaderTimestamp:
			if at, err := time.Parse(time.RFC3339Nano, value); err == nil {
				l.At = at
			}
		case payment.DeadHeaderConsumer:
			l.Consumer = value
		}
	}
	return l
}

// base64Suffix marks a header whose value was not text.
const base64Suffix = "-base64"

// original are the headers that the record had before it died. What settleonce
// itself gave up has CloudEvents headers of the letter, which are not the record's;
// what an inbox gave up has kept its own, and is known by them when it comes again.
func original(r *kafka.Record) []kafka.Header {
	inbox := slices.ContainsFunc(r.Headers, func(h kafka.Header) bool { return h.Key == payment.DeadHeaderConsumer })
	var out []kafka.Header
	for _, h := range r.Headers {
		switch {
		case strings.HasPrefix(h.Key, payment.DeadHeaderPrefix):
		case !inbox && (strings.HasPrefix(h.Key, "ce_") || h.Key == "content-type"):
		case !inbox && strings.HasSuffix(h.Key, base64Suffix):
			if value, err := base64.StdEncoding.DecodeString(string(h.Value)); err == nil {
				h = kafka.Header{Key: strings.TrimSuffix(h.Key, base64Suffix), Value: value}
			}
			out = append(out, h)
		default:
			out = append(out, h)
		}
	}
	return out
}

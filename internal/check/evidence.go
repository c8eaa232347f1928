package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/payment"
)

// Evidence is everything the verdict rests on: what is in the topics, in the
// order of each partition, and the channel's own ledger. No worker is asked; the
// tables are evidence of their own, see Rules.
type Evidence struct {
	Commands, Replies, Events, DeadLetters, Requeries []kafka.Record
	Ledger                                            []sim.Charge
	// Offsets say how far the consumers are; nil when nobody asked.
	Offsets []Offset
	// Queries are all lookups at the channel since it was started last.
	Queries int
}

// Tail reads topics from where it stopped.
type Tail struct {
	client *kafka.Client
	// Topics are the names it reads, CommandTopics those of commands.
	Topics        payment.Topics
	CommandTopics []string
	next          map[string]map[int]int64
	// Evidence is what was read so far.
	Evidence Evidence
}

// NewTail reads the topics from their start.
func NewTail(client *kafka.Client, topics payment.Topics) *Tail {
	return &Tail{client: client, Topics: topics, CommandTopics: []string{topics.Commands}, next: map[string]map[int]int64{}}
}

// Read appends what is new in a topic, and returns it.
func (t *Tail) Read(ctx context.Context, topic string, into *[]kafka.Record) ([]kafka.Record, error) {
	before := len(*into)
	next, err := t.client.ReadFrom(ctx, topic, t.next[topic], func(r kafka.Record) error {
		*into = append(*into, r)
		return nil
	})
	t.next[topic] = next
	return (*into)[before:], err
}

// All brings everything up to date.
func (t *Tail) All(ctx context.Context) error {
	e := &t.Evidence
	for _, part := range []struct {
		topic string
		into  *[]kafka.Record
	}{
		{t.Topics.Replies, &e.Replies},
		{t.Topics.Events, &e.Events},
		{t.Topics.DeadLetter, &e.DeadLetters},
		{t.Topics.Requery[0], &e.Requeries},
		{t.Topics.Requery[1], &e.Requeries},
		{t.Topics.Requery[2], &e.Requeries},
	} {
		if _, err := t.Read(ctx, part.topic, part.into); err != nil {
			return err
		}
	}
	return t.readCommands(ctx)
}

// readCommands comes last: whatever the other topics tell of was asked for before.
func (t *Tail) readCommands(ctx context.Context) error {
	for _, topic := range t.CommandTopics {
		if _, err := t.Read(ctx, topic, &t.Evidence.Commands); err != nil {
			return err
		}
	}
	return nil
}

// Snapshot is the evidence so far, which later reads do not change.
func (t *Tail) Snapshot() Evidence {
	e := t.Evidence
	for _, records := range []*[]kafka.Record{&e.Commands, &e.Replies, &e.Events, &e.DeadLetters, &e.Requeries} {
		*records = slices.Clip(*records)
	}
	return e
}

// ReadLedger asks the channel for every charge it knows.
func ReadLedger(ctx context.Context, url string, e *Evidence) error {
	err := ask(ctx, url+"/ledger", func(body io.Reader) error {
		lines := json.NewDecoder(body)
		for {
			var charge sim.Charge
			if err := lines.Decode(&charge); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			e.Ledger = append(e.Ledger, charge)
		}
	})
	if err != nil {
		return err
	}
	return ask(ctx, url+"/ledger/summary", func(body io.Reader) error {
		var sum sim.Summary
		err := json.NewDecoder(body).Decode(&sum)
		e.Queries = int(sum.Queries)
		return err
	})
}

// ErrChannel says that the channel shows no ledger.
var ErrChannel = errors.New("the channel shows no ledger")

// ask reads one page of the channel.
func ask(ctx context.Context, url string, read func(io.Reader) error) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrChannel, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrChannel, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: %s answers %s", ErrChannel, url, response.Status)
	}
	if err := read(response.Body); err != nil {
		return fmt.Errorf("%w: read %s: %w", ErrChannel, url, err)
	}
	return nil
}

// Header is the value of a record's header, empty when it has none.
func Header(r *kafka.Record, name string) string {
	for i := range r.Headers {
		if r.Headers[i].Key == name {
			return string(r.Headers[i].Value)
		}
	}
	return ""
}

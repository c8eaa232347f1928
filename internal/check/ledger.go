package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/channel/sim"
)

// Ledger is what one channel's books say.
type Ledger struct {
	// Channel is its name.
	Channel string
	Charges []sim.Charge
	// Queries are all lookups since the channel was started last.
	Queries int
	// Load is what arrived second by second, and since when it is counted; the zero
	// value where the channel does not tell.
	Load sim.Load
	// Callbacks count what the channel sent us since it was started last; the zero value
	// where it does not tell.
	Callbacks sim.CallbackCounts
	// At is when it was read.
	At time.Time
}

// ReadLedger asks a channel for every charge it knows.
func ReadLedger(ctx context.Context, name, url string) (Ledger, error) {
	l := Ledger{Channel: name, At: time.Now()}
	err := ask(ctx, url+"/ledger", func(body io.Reader) error {
		lines := json.NewDecoder(body)
		for {
			var charge sim.Charge
			if err := lines.Decode(&charge); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			charge.Metadata, charge.Customer, charge.Method = nil, "", "" // nothing here needs them
			l.Charges = append(l.Charges, charge)
		}
	})
	if err != nil {
		return l, err
	}
	err = ask(ctx, url+"/ledger/summary", func(body io.Reader) error {
		var sum sim.Summary
		err := json.NewDecoder(body).Decode(&sum)
		l.Queries = int(sum.Queries)
		return err
	})
	if err != nil {
		return l, err
	}
	err = ask(ctx, url+"/ledger/load", func(body io.Reader) error { return json.NewDecoder(body).Decode(&l.Load) })
	if errors.Is(err, errNotThere) {
		err = nil // an older simulator
	}
	if err == nil {
		err = l.readCallbacks(ctx, url)
	}
	return l, err
}

func (l *Ledger) readCallbacks(ctx context.Context, url string) error {
	var state struct {
		Counts sim.CallbackCounts `json:"counts"`
	}
	err := ask(ctx, url+"/admin/callbacks", func(body io.Reader) error { return json.NewDecoder(body).Decode(&state) })
	if l.Callbacks = state.Counts; errors.Is(err, errNotThere) {
		return nil // an older simulator, or one behind a wall
	}
	return err
}

// ErrChannel says that the channel shows no ledger.
var ErrChannel = errors.New("the channel shows no ledger")

var errNotThere = errors.New("there is no such page")

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
	switch {
	case response.StatusCode == http.StatusNotFound:
		return fmt.Errorf("%w: %w: %s", ErrChannel, errNotThere, url)
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("%w: %s answers %s", ErrChannel, url, response.Status)
	}
	if err := read(response.Body); err != nil {
		return fmt.Errorf("%w: read %s: %w", ErrChannel, url, err)
	}
	return nil
}

// fileLedgers finds the payment of each charge by its provider key, which is
// derived from the payment's identity and attempt: another key would be a second
// identity of the same payment at the provider.
func (e *Evidence) fileLedgers() {
	if e.filed == len(e.Ledgers) {
		return
	}
	owner := make(map[uuid.UUID]*dossier, len(e.dossiers))
	for _, d := range e.dossiers {
		for attempt := range d.attempts() {
			owner[d.identity.ProviderKey(attempt+1)] = d
		}
	}
	for i := e.filed; i < len(e.Ledgers); i++ {
		l := &e.Ledgers[i]
		for k := range l.Charges {
			e.fileCharge(owner, &entry{&l.Charges[k], e.word(l.Channel)})
		}
	}
	e.filed = len(e.Ledgers)
}

func (e *Evidence) fileCharge(owner map[uuid.UUID]*dossier, c *entry) {
	d, ok := owner[c.ProviderKey]
	switch {
	case !ok:
		e.foreign[c.ProviderKey] = true
		e.stray("G1", c.ProviderKey.String(), "the channel "+c.channel+" was asked under a provider key that belongs to no payment (order "+c.Order+")")
	case d.charge == nil:
		d.charge = c
	default:
		d.others = append(d.others, c)
	}
}

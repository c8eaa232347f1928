package channel

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Entry is one configured channel: its adapter and what it promises.
type Entry struct {
	Adapter      Adapter
	Capabilities Capabilities
}

// Registry holds the configured channels by name. It never changes after it was
// made, so it is safe for concurrent use.
type Registry struct {
	entries map[string]Entry
	names   []string
}

// NewRegistry takes the channels by name, fills the defaults of their records
// and validates them. It reports every fault, each with the channel's name.
func NewRegistry(channels map[string]Entry) (*Registry, error) {
	r := &Registry{entries: make(map[string]Entry, len(channels)), names: slices.Sorted(maps.Keys(channels))}
	var errs []error
	for _, name := range r.names {
		entry := channels[name]
		entry.Capabilities = entry.Capabilities.WithDefaults()
		if err := entry.validate(name); err != nil {
			errs = append(errs, fmt.Errorf("channel %q: %w", name, err))
		}
		r.entries[name] = entry
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return r, nil
}

// Get returns the channel of a name, and whether it is configured.
func (r *Registry) Get(name string) (Entry, bool) {
	entry, ok := r.entries[name]
	return entry, ok
}

// Names returns the names of all channels, sorted.
func (r *Registry) Names() []string { return slices.Clone(r.names) }

func (e Entry) validate(name string) error {
	if name == "" {
		return errors.New("the name is empty: give the channel a name")
	}
	if e.Adapter == nil {
		return errors.New("there is no adapter: configure one")
	}
	return e.Capabilities.Validate()
}

package callers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/settleonce/settleonce/internal/callers/signing"
)

// keysFresh is how old the copy of the file of keys may be: a key that was taken
// out is refused after that at the latest.
const keysFresh = 5 * time.Second

// Signatures checks the signatures of commands on Kafka (G12) against the keys of
// a file. It reads the file again while it works, so that keys change without a
// restart. It is safe for concurrent use.
type Signatures struct {
	path     string
	required []string

	mu   sync.Mutex // one reading at a time
	copy atomic.Pointer[keysCopy]
}

type keysCopy struct {
	ring signing.Ring
	read time.Time
}

// NewSignatures reads the file. Commands of the required callers must carry a
// signature, "*" standing for all; of others, a signature that is there must be
// right.
func NewSignatures(path string, required []string) (*Signatures, error) {
	s := &Signatures{path: path, required: slices.Clone(required)}
	if err := s.read(); err != nil {
		return nil, err
	}
	return s, nil
}

// Check returns why a record is not proven to be its caller's, as a sentence; nil
// when it is, or when the caller need not sign and did not.
func (s *Signatures) Check(caller string, key, value []byte, signatures []string) error {
	ring := s.ring()
	switch {
	case len(signatures) == 0 && !s.requires(caller):
		return nil
	case len(signatures) == 0:
		return fmt.Errorf("%w, and caller %s must sign", signing.ErrNone, caller)
	case len(signatures) > 1:
		return errors.New("the command carries more than one signature")
	}
	return ring.Verify(caller, key, value, signatures[0])
}

func (s *Signatures) requires(caller string) bool {
	return slices.Contains(s.required, caller) || slices.Contains(s.required, signing.Everyone)
}

// ring is the copy, brought up to date when it is old. A file that cannot be read
// at that moment leaves the copy as it is: whoever is refused by it is looked at
// again after Refresh, which does not succeed then.
func (s *Signatures) ring() signing.Ring {
	held := s.copy.Load()
	if time.Since(held.read) < keysFresh || !s.mu.TryLock() {
		return held.ring
	}
	defer s.mu.Unlock()
	if err := s.load(); err != nil {
		s.copy.Store(&keysCopy{ring: held.ring, read: time.Now()})
	}
	return s.copy.Load().ring
}

// Refresh reads the file now.
func (s *Signatures) Refresh(context.Context) error { return s.read() }

func (s *Signatures) read() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.load()
}

func (s *Signatures) load() error {
	began := time.Now()
	text, err := os.ReadFile(s.path)
	if err != nil {
		return fmt.Errorf("signing-keys-file: the file cannot be read, check path and rights: %w", err)
	}
	ring, err := signing.Parse(string(text))
	if err != nil {
		return fmt.Errorf("signing-keys-file: %w", err)
	}
	if len(ring) == 0 { // somebody may be writing it: by an empty file everybody would be refused
		return errors.New("signing-keys-file: the file has no key: write one with `settleonce callers signing-key`")
	}
	s.copy.Store(&keysCopy{ring: ring, read: began})
	return nil
}

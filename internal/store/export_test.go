package store

import "time"

// SessionSettings are what OpenPool sets, for a pool that also listens to plans.
func SessionSettings() map[string]string { return sessionSettings }

// CommitWithin sets how long the second half of a transaction may take.
func (s *Store) CommitWithin(d time.Duration) { s.commitWithin = d }

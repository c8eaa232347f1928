package torture

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/settleonce/settleonce/internal/fleet"
)

// loss is a kind of message that a proxy can lose.
type loss string

// What can be lost.
const (
	produceAnswer   loss = "produced, and the answer lost"
	offsetAnswer    loss = "offsets committed, and the answer lost"
	commitRequest   loss = "commits that never reached the database"
	commitAnswer    loss = "transactions committed, and the answer lost"
	statementAnswer loss = "single statements committed, and the answer lost"
)

// losses says how many messages of each kind are still to be lost, and counts
// those that were.
type losses struct {
	mu   sync.Mutex
	left map[loss]int
	lost map[loss]int
}

func newLosses() *losses { return &losses{left: map[loss]int{}, lost: map[loss]int{}} }

// wanted reports whether messages of the kind are to be lost now.
func (l *losses) wanted(kind loss) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.left[kind] > 0
}

// take claims the loss of one message.
func (l *losses) take(kind loss) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left[kind] == 0 {
		return false
	}
	l.left[kind]--
	l.lost[kind]++
	return true
}

// giveBack is for a message that was taken, and then had not done its work.
func (l *losses) giveBack(kind loss) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left[kind]++
	l.lost[kind]--
}

// counts is what was lost so far.
func (l *losses) counts() map[loss]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.lost)
}

const (
	// lossPatience is how long the first message that is to be lost is waited for; on a
	// busy machine, or while the broker is away, none may come for long.
	lossPatience = 2 * time.Minute
	// restPatience is how long the others are.
	restPatience = 10 * time.Second
)

// lose has the next n messages of the kind lost, as far as there are any in time.
// One at least must be.
func (l *losses) lose(ctx context.Context, kind loss, n int) error {
	return l.loseWithin(ctx, kind, n, lossPatience)
}

func (l *losses) loseWithin(ctx context.Context, kind loss, n int, patience time.Duration) error {
	l.mu.Lock()
	l.left[kind] += n
	before := l.lost[kind]
	l.mu.Unlock()
	for begun := time.Now(); l.wanted(kind) && fleet.Pause(ctx, 20*time.Millisecond); {
		if waited := time.Since(begun); waited > patience || waited > restPatience && l.counts()[kind] > before {
			break
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left[kind] = 0
	if l.lost[kind] == before {
		return fmt.Errorf("nothing came by that could be lost: %s", kind)
	}
	return nil
}

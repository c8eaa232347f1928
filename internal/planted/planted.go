// Package planted lists the guards of the guarantees, each with the bug that is
// left when the guard is taken out, and with what catches that bug: a torture run
// of some seed, a check of the model, or a test. A net that was never seen to
// catch anything proves nothing; `make planted` plants every bug in a copy of the
// tree, one at a time, and fails if one slips through.
package planted

import (
	"fmt"
	"strings"
)

// Edit replaces text that occurs exactly once in a file.
type Edit struct {
	// File is the path from the root of the repository.
	File string
	// Old is the guard, New what is left without it.
	Old, New string
}

// Bug is one guard taken out.
type Bug struct {
	// Name is how `make planted BUG=name` finds it.
	Name string
	// Guarantee is what breaks, as in "G1".
	Guarantee string
	// What says what the code does without the guard.
	What string
	// File and Guard name the guard as docs/guarantees.md does: a file, and a
	// function, method or variable in it that holds Old.
	File, Guard string
	Old, New    string
	// Also are further edits that the bug takes to compile, or to get past a second guard.
	Also []Edit
	// Torture are flags of `settleonce torture`; its report must name the guarantee,
	// or one of Shows.
	Torture string
	// Model is a model and switches, as in model/checks.txt: the same rule left out
	// of the protocol. The code is not run by it.
	Model string
	// Other is set where the guard is one of two, either of which suffices: the check
	// of the world in which only the other one is left out. The model must hold there
	// by this guard, and fail with Model, which leaves out both.
	Other string
	// Test is a package and a pattern of tests, of which one must fail.
	Test string
	// Shows are other guarantees under which the torture run may report the bug:
	// what is seen from outside is not always the guarantee whose guard is gone.
	Shows []string
	// Why says why only a test catches it; empty where a torture run or the model does.
	Why string
}

// Edits are all edits of the bug.
func (b *Bug) Edits() []Edit {
	return append([]Edit{{File: b.File, Old: b.Old, New: b.New}}, b.Also...)
}

// Apply makes the edits in a tree, through the two functions, and says which one
// does not fit any more.
func (b *Bug) Apply(read func(file string) (string, error), write func(file, text string) error) error {
	for _, e := range b.Edits() {
		text, err := read(e.File)
		if err != nil {
			return fmt.Errorf("plant %s: %w", b.Name, err)
		}
		if n := strings.Count(text, e.Old); n != 1 {
			return fmt.Errorf("plant %s: its text occurs %d times in %s instead of once; the guard was rewritten, so rewrite the bug", b.Name, n, e.File)
		}
		if err := write(e.File, strings.Replace(text, e.Old, e.New, 1)); err != nil {
			return fmt.Errorf("plant %s: %w", b.Name, err)
		}
	}
	return nil
}

// Bugs are all planted bugs, as they are listed, one file for each kind.
func Bugs() []Bug {
	var all []Bug
	for _, some := range [][]Bug{charges, answers, records, downstream, order, budget, obligations} {
		all = append(all, some...)
	}
	return all
}

// Exempt are guards that docs/guarantees.md names and that have no planted bug,
// with the reason.
func Exempt() map[string]string { return exempt }

// exempt are guards without a bug.
var exempt = map[string]string{
	"internal/settle/settler.go Settler.Submit":       "no transaction is open during a call because none is begun: there is nothing to take out",
	"internal/kafka/fenced.go Client.PublishFenced":   "the guard is in what it sends: see no-producer-epoch, of chunk.encode",
	"payment/fingerprint.go Command.Fingerprint":      "see amount-left-out, of appendCanonical, which it hashes",
	"internal/kafka/generation.go generation.commit":  "the check is the broker's: the group refuses a commit of an older generation (model: `group -DGENERATION=0`)",
	"internal/store/retention.go Store.RemoveExpired": "see later-copy-ignored, of its statements",
	"internal/kafka/tracker.go tracker":               "see offset-past-a-hole, of its method advance",
}

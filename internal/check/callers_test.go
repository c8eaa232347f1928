package check

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/payment"
)

// house is a world in which callers are kept apart: somebody forges commands of the
// shop, the jobs are shut out, and the partner has topics of its own.
type house struct {
	*world

	rule Rules
}

func newHouse(t *testing.T) *house {
	t.Helper()
	w := newWorld(t)
	h := &house{world: w, rule: w.rules()}
	h.rule.ShutOut = map[string]time.Time{}
	return h
}

func (h *house) verdict() Verdict {
	h.rule.Expected = h.expected
	return Judge(h.file(), h.rule)
}

// forge delivers a command with a signature that is not the shop's.
func (h *house) forge(c payment.Command, signature string) kafka.Record {
	r := h.deliver(c)
	in := &h.evidence.Commands[len(h.evidence.Commands)-1]
	if signature != "" {
		in.Headers = append(in.Headers, kafka.Header{Key: signatureHeader, Value: []byte(signature)})
	}
	h.rule.Forged = append(h.rule.Forged, Forgery{Key: r.Key, Value: r.Value, Signature: signature, How: "in a test"})
	return *in
}

// shut has the jobs shut out from now on.
func (h *house) shut() { h.rule.ShutOut["jobs"] = h.tick() }

// pose is what somebody was told who showed no key of its own.
func (h *house) pose(c payment.Command, status int) {
	sum, err := c.Fingerprint()
	require.NoError(h.t, err)
	h.rule.Told = append(h.rule.Told, Told{Caller: c.Caller, Key: c.IdempotencyKey, Sum: sum, Posed: "a guessed secret", Status: status})
}

// move puts the last record of a topic into another one.
func move(records []kafka.Record, topic string) { records[len(records)-1].Topic = topic }

// atHome is a charged payment of the partner, told where only the partner reads.
func (h *house) atHome() payment.Command {
	c := h.command(byCaller("partner"))
	h.charged(c)
	move(h.evidence.Events, "payment.events.partner")
	move(h.evidence.Replies, "payment.replies.partner")
	return c
}

func byCaller(name string) func(*payment.Command) {
	return func(c *payment.Command) { c.Caller = name }
}

// Forgers are buried, whatever they name; who is shut out too, but for what was
// published before; impostors hear 401.
func TestCallers_HoldsForWhatIsAllowed(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.atHome()
	c := h.command()
	dearer := c
	dearer.Amount *= 100
	h.bury(h.forge(dearer, "v1:billing-1:00"), payment.DeadBadSignature)
	h.bury(h.forge(c, ""), payment.DeadBadSignature)
	genuine := h.deliver(c)
	h.evidence.Commands[len(h.evidence.Commands)-1].Headers = []kafka.Header{{Key: signatureHeader, Value: []byte("right")}}
	h.ask(c, sim.StatusSettled)
	h.answer(genuine, c, payment.ReplyOutcome, withOutcome(h.tell(c, payment.EventSucceeded, payment.Succeeded)))
	h.bury(h.forge(h.command(), "v1:billing-1:00"), payment.DeadBadSignature)
	early, waiting := h.command(byCaller("jobs")), h.command(byCaller("jobs"))
	h.charged(early)
	queued := h.deliver(waiting)
	h.expect(waiting, Ends{Guarantee: "G5", States: []payment.State{payment.Succeeded}, Buried: true})
	h.shut()
	h.bury(queued, payment.DeadForeignCaller)
	h.bury(h.deliver(h.command(byCaller("jobs"))), payment.DeadForeignCaller)
	h.bury(h.deliver(early), payment.DeadForeignCaller)
	h.pose(h.command(), http.StatusUnauthorized)
	h.pose(dearer, http.StatusUnauthorized)
	v := h.verdict()
	require.Empty(t, v.Violations)
	require.Equal(t, []int{3, 2, 2}, []int{v.Counts.Forged, v.Counts.ShutOut, v.Counts.Posed})
	require.Empty(t, Outstanding(h.file(), Rules{Callers: callers}))
}

// Each violation is planted into a run that held, and must be found at its key.
func TestCallers_FindsPlantedViolations(t *testing.T) {
	t.Parallel()
	for name, spoil := range callerPlants {
		guarantee, _, _ := strings.Cut(name, " ")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.charged(h.command()) // bystanders
			h.atHome()
			require.Empty(t, h.verdict().Violations)
			key := spoil(h).String()
			found := map[string]bool{}
			for _, v := range h.verdict().Violations {
				found[v.Guarantee+" "+v.Key] = true
			}
			require.True(t, found[guarantee+" "+key], "%s at %s among %v", guarantee, key, found)
		})
	}
}

var callerPlants = map[string]func(h *house) uuid.UUID{
	"G12 a forged command is nowhere": func(h *house) uuid.UUID {
		c := h.command()
		h.forge(c, "v1:billing-1:00")
		return c.IdempotencyKey
	},
	"G12 a forger is told that it is a conflict": func(h *house) uuid.UUID {
		c := h.command()
		h.charged(c)
		dearer := c
		dearer.Amount++
		h.answer(h.forge(dearer, ""), c, payment.ReplyConflict, withCode(payment.CodeIdempotencyConflict, nil, false))
		return c.IdempotencyKey
	},
	"G12 a forged command is charged": func(h *house) uuid.UUID {
		c := h.command()
		r := h.forge(c, "v1:billing-1:00")
		h.ask(c, sim.StatusSettled)
		h.answer(r, c, payment.ReplyOutcome, withOutcome(h.tell(c, payment.EventSucceeded, payment.Succeeded)))
		return c.IdempotencyKey
	},
	"G12 a forged command is buried, and charged": func(h *house) uuid.UUID {
		c := h.command()
		h.bury(h.forge(c, "v1:billing-1:00"), payment.DeadBadSignature)
		h.ask(c, sim.StatusSettled)
		return c.IdempotencyKey
	},
	"G5 a signed command is taken for a forged one": func(h *house) uuid.UUID {
		c := h.command()
		h.bury(h.forge(c, ""), payment.DeadBadSignature)
		genuine := h.deliver(c)
		h.evidence.Commands[len(h.evidence.Commands)-1].Headers = []kafka.Header{{Key: signatureHeader, Value: []byte("right")}}
		h.bury(genuine, payment.DeadBadSignature)
		h.expect(c, endsCharged)
		return c.IdempotencyKey
	},
	"G12 charged after it was shut out": func(h *house) uuid.UUID {
		h.shut()
		c := h.command(byCaller("jobs"))
		h.charged(c)
		return c.IdempotencyKey
	},
	"G12 refused in an answer after it was shut out": func(h *house) uuid.UUID {
		c := h.command(byCaller("jobs"))
		h.charged(c)
		h.shut()
		h.answer(h.deliver(c), c, payment.ReplyPending)
		return c.IdempotencyKey
	},
	"G12 nowhere after it was shut out": func(h *house) uuid.UUID {
		h.shut()
		c := h.command(byCaller("jobs"))
		h.deliver(c)
		return c.IdempotencyKey
	},
	"G12 let in by a guessed secret": func(h *house) uuid.UUID {
		c := h.command()
		h.charged(c)
		h.pose(c, http.StatusAccepted)
		return c.IdempotencyKey
	},
	"G12 told by a guessed secret what is there": func(h *house) uuid.UUID {
		c := h.command()
		h.pose(c, http.StatusNotFound)
		return c.IdempotencyKey
	},
	"G12 an impostor's command is in the topic": func(h *house) uuid.UUID {
		c := h.command()
		h.charged(c)
		h.pose(c, http.StatusUnauthorized)
		return c.IdempotencyKey
	},
	"G5 a good command is a dead letter": func(h *house) uuid.UUID {
		c := h.command()
		h.bury(h.deliver(c), payment.DeadForeignCaller)
		h.expect(c, endsCharged)
		return c.IdempotencyKey
	},
	"G12 a partner's event for everybody": func(h *house) uuid.UUID {
		c := h.atHome()
		move(h.evidence.Events, "payment.events")
		return c.IdempotencyKey
	},
	"G12 a partner's reply for everybody": func(h *house) uuid.UUID {
		c := h.atHome()
		move(h.evidence.Replies, "payment.replies")
		return c.IdempotencyKey
	},
	"G12 another's event for the partner": func(h *house) uuid.UUID {
		c := h.command()
		h.charged(c)
		move(h.evidence.Events, "payment.events.partner")
		return c.IdempotencyKey
	},
	"G12 another's reply for the partner": func(h *house) uuid.UUID {
		c := h.command()
		h.charged(c)
		move(h.evidence.Replies, "payment.replies.partner")
		return c.IdempotencyKey
	},
}

package history

import (
	"fmt"

	"github.com/anishathalye/porcupine"

	"github.com/settleonce/settleonce/payment"
)

// Kind is what a call does.
type Kind int

// The calls of a history.
const (
	// Deliver brings a command with some content.
	Deliver Kind = iota + 1
	// Settle brings what the provider said: the environment, of which nothing is
	// known beforehand.
	Settle
	// Look reads the payment's state.
	Look
)

// Input is a call.
type Input struct {
	Kind Kind
	// Key is the payment; keys are independent of each other.
	Key string
	// Content stands for a command's fingerprint.
	Content string
	// To and Reference are what a settlement brings.
	To        payment.State
	Reference string

	call int64 // tells calls apart
}

// Answer is what a caller was told.
type Answer int

// The answers of calls.
const (
	// Unseen: the caller did not hear. The call may have happened, may yet, or never.
	Unseen Answer = iota
	// Claimed, Pending, Replayed, Conflict and Rejected answer a delivery.
	Claimed
	Pending
	Replayed
	Conflict
	Rejected
	// Applied and Refused answer a settlement, Found a look.
	Applied
	Refused
	Found
	// Missing answers both: there is no such payment.
	Missing
)

// Output is an answer with what came with it.
type Output struct {
	Answer Answer
	// State comes with Replayed and Found; Code with a rejection, also a replayed one.
	State payment.State
	Code  payment.Code
	// Reference comes with Found.
	Reference string
}

// record is the model's state of one payment; the zero value is none.
type record struct {
	content   string
	state     payment.State
	code      payment.Code
	reference string
	by        int64 // the delivery that made it
}

// anyCode is the code of a rejection nobody has heard of yet: the first who is
// told it fixes it.
const anyCode payment.Code = "?"

func (r record) absent() bool { return r.state == 0 }

func (r record) resolved() bool {
	return r.state == payment.Succeeded || r.state == payment.Declined || r.state == payment.Rejected
}

// takes reports whether a settlement changes the record: what is resolved stays
// (G9), and an unanswered send is noted once.
func (r record) takes(to payment.State) bool {
	if to == payment.Unknown {
		return r.state == payment.Pending
	}
	return !r.absent() && !r.resolved()
}

func (r record) settled(in Input) record {
	r.state, r.reference = in.To, in.Reference
	return r
}

// step returns every state in which the call may leave a record when it was
// answered so; none when it cannot have been.
func step(r record, in Input, out Output) []record {
	switch in.Kind {
	case Deliver:
		return deliver(r, in, out)
	case Settle:
		return settle(r, in, out)
	case Look:
		return look(r, out)
	default:
		return nil
	}
}

func deliver(r record, in Input, out Output) []record {
	if r.absent() {
		return claim(in, out)
	}
	stays := []record{r}
	switch {
	case out.Answer == Unseen:
		return stays // a repeat changes nothing
	case r.content != in.Content:
		return when(out.Answer == Conflict, stays)
	case !r.resolved():
		return when(out.Answer == Pending, stays)
	case r.state == payment.Rejected && r.by == in.call && out.Answer == Rejected:
		return bindCode(r, out.Code) // refused by its own first run, of which nobody was told
	default:
		return when(out.Answer == Replayed && out.State == r.state, bindCode(r, out.Code))
	}
}

// claim is the first delivery of a key: taken, or rejected for a reason that is
// not this key's own (its order is being paid, it is stale).
func claim(in Input, out Output) []record {
	taken := record{content: in.Content, state: payment.Pending, by: in.call}
	rejected := record{content: in.Content, state: payment.Rejected, code: out.Code, by: in.call}
	switch out.Answer {
	case Claimed:
		return []record{taken}
	case Rejected:
		return []record{rejected}
	case Unseen:
		rejected.code = anyCode
		return []record{{}, taken, rejected}
	case Pending, Replayed, Conflict, Applied, Refused, Found, Missing:
	}
	return nil
}

func settle(r record, in Input, out Output) []record {
	stays := []record{r}
	switch out.Answer {
	case Applied:
		return when(r.takes(in.To), []record{r.settled(in)})
	case Refused:
		return when(!r.absent() && !r.takes(in.To), stays)
	case Missing:
		return when(r.absent(), stays)
	case Unseen:
		if r.takes(in.To) {
			return []record{r, r.settled(in)}
		}
		return stays
	case Claimed, Pending, Replayed, Conflict, Rejected, Found:
	}
	return nil
}

func look(r record, out Output) []record {
	switch out.Answer {
	case Unseen:
		return []record{r}
	case Missing:
		return when(r.absent(), []record{r})
	case Found:
		return when(!r.absent() && out.State == r.state && out.Reference == r.reference, bindCode(r, out.Code))
	case Claimed, Pending, Replayed, Conflict, Rejected, Applied, Refused:
	}
	return nil
}

// bindCode is the record when this code was told of it, nothing when it has another.
func bindCode(r record, told payment.Code) []record {
	if r.code == anyCode {
		r.code = told
	}
	return when(r.code == told, []record{r})
}

func when(possible bool, states []record) []record {
	if possible {
		return states
	}
	return nil
}

// model is the sequential payment in porcupine's terms, for the calls of one key.
func model() porcupine.Model {
	nondeterministic := porcupine.NondeterministicModel{
		Init: func() []any { return []any{record{}} },
		Step: func(state, input, output any) []any {
			r, _ := state.(record)
			in, _ := input.(Input)
			out, _ := output.(Output)
			var next []any
			for _, s := range step(r, in, out) {
				next = append(next, s)
			}
			return next
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v: %+v", input, output) },
	}
	return nondeterministic.ToModel()
}

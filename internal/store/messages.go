package store

import (
	"time"

	"github.com/settleonce/settleonce/outbox"
	"github.com/settleonce/settleonce/payment"
)

// replyMessage builds the reply to one delivery. Its id is derived from the
// delivery, so a repeat of the same work carries the same id.
func replyMessage(topics payment.Topics, p *Payment, o Origin, kind payment.ReplyKind, code payment.Code, replayed bool) outbox.Message {
	reply := payment.Reply{
		Kind: kind, Code: code, Caller: p.Identity.Caller, Operation: p.Identity.Operation,
		IdempotencyKey: p.Identity.Key, PaymentID: p.ID, State: p.State, Version: p.Version, Replayed: replayed,
	}
	if code != payment.CodeIdempotencyConflict {
		reply.Detail, reply.BlockedBy = p.Detail, p.BlockedBy
	} else {
		reply.Detail = "this idempotencyKey was used for other content; repeat the command unchanged, or make a new key for a new intent"
	}
	if p.State.Terminal() && p.State != payment.Rejected && kind != payment.ReplyConflict {
		reply.Outcome = &payment.Outcome{
			State: p.State, ProviderReference: p.ProviderReference, Cause: p.Cause, OccurredAt: p.EndedAt,
		}
	}
	return outbox.Message{
		ID: payment.ReplyID(o.Topic, o.Partition, o.Offset, o.Time, kind), Topic: topics.RepliesOf(p.Identity.Caller),
		Key: keyOf(p), Type: kind.CEType(), Subject: p.ID.String(), Payload: reply.AppendJSON(nil),
	}
}

func eventMessage(topics payment.Topics, p *Payment, event payment.EventType, at time.Time) outbox.Message {
	e := payment.Event{
		PaymentID: p.ID, Caller: p.Identity.Caller, Operation: p.Identity.Operation, IdempotencyKey: p.Identity.Key,
		OrderID: p.OrderID, Obligation: p.Obligation, Amount: p.Amount, Currency: p.Currency, Channel: p.Channel,
		State: p.State, Version: p.Version, Attempt: p.Attempt, ProviderReference: p.ProviderReference,
		Cause: p.Cause, OccurredAt: at,
	}
	return outbox.Message{
		ID: payment.EventID(p.ID, p.Version, event), Topic: topics.EventsOf(p.Identity.Caller),
		Key: keyOf(p), Type: string(event), Subject: p.ID.String(), Payload: e.AppendJSON(nil),
	}
}

func requeryMessage(topics payment.Topics, p *Payment, query int, due time.Time) outbox.Message {
	r := payment.Requery{PaymentID: p.ID, Attempt: p.Attempt, Query: query, DueAt: due}
	return outbox.Message{
		ID: payment.RequeryID(p.ID, p.Attempt, query), Topic: topics.Requery[query-1],
		Key: keyOf(p), Type: "payment.requery", Subject: p.ID.String(), Payload: r.AppendJSON(nil),
	}
}

func keyOf(p *Payment) []byte { return []byte(p.Identity.Key.String()) }

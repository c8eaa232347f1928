package store

import (
	"encoding/base64"
	"errors"
	"maps"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/outbox"
	"github.com/settleonce/settleonce/payment"
)

// judge gives every arrival its verdict, from what the reads found, and
// collects what has to be written. Arrivals are judged in the order of delivery:
// a repeat in the same batch is judged against what became of the first.
func (run *claimRun) judge() error {
	if run.suspect && !run.batch.QueryFirst {
		return errLostCommits
	}
	if run.strangers {
		return ErrCallersChanged
	}
	for _, ground := range run.ground {
		if ground.Holder == nil {
			return errHoldFreed
		}
	}
	for i := range run.arrivals {
		a := &run.arrivals[i]
		switch {
		case a.Dead != nil:
			run.outcomes[i] = Outcome{Verdict: DeadLettered}
			run.messages = append(run.messages, deadLetter(run.topics, a, *a.Dead))
		case run.first[run.ids[i]] == i && run.mine(run.ids[i]):
			run.outcomes[i] = run.judgeFresh(i)
		default:
			if _, ok := run.known[run.ids[i]]; !ok {
				return errVanished
			}
			run.outcomes[i] = run.judgeRepeat(i)
		}
	}
	return nil
}

// errVanished says that a payment was there at the insert and gone at the read:
// retention removed it in between. Claimed again, it is a new row or stale.
var errVanished = errors.New("a payment was removed while its command was claimed")

// errHoldFreed says that the hold was another payment's when this claim tried for
// it, and free when the claim looked who has it. Without a hold nothing would keep
// the next key of the obligation from being charged too (G15): claimed again.
var errHoldFreed = errors.New("the hold of an obligation was given back while a command for it was claimed")

// mine reports whether this batch brought the payment in.
func (run *claimRun) mine(id uuid.UUID) bool {
	_, opened := run.ground[id]
	return opened || run.inserted[id]
}

func (run *claimRun) judgeFresh(i int) Outcome {
	a, p := &run.arrivals[i], run.fresh(i)
	if a.Refusal != nil {
		return run.reject(i, p, a.Refusal.Code, a.Refusal.Detail, nil)
	}
	if code := run.batch.Freshness.Judge(p.IssuedAt, run.now); code != "" {
		return run.rejectTime(i, p, code)
	}
	if code, by := run.ground[p.ID].Verdict(p.ID, p.IssuedAt, p.Follows); code != "" {
		return run.rejectClaimed(i, p, code, detailOf(code), by)
	}
	p.Sends = run.sends[p.ID] // only a permit that is stored is one
	if run.batch.Announce {
		run.announce(i, &p)
	}
	run.settle(p)
	if p.Sends == 0 {
		return Outcome{Verdict: Parked, Payment: &p}
	}
	return Outcome{Verdict: Claimed, Payment: &p}
}

// announce publishes that the payment was claimed. It is an event, so it raises
// the version.
func (run *claimRun) announce(i int, p *Payment) {
	p.Version = 1
	run.announced = append(run.announced, p.ID)
	run.send(i, eventMessage(run.topics, p, payment.EventAccepted, run.now))
	run.send(i, replyMessage(run.topics, p, run.arrivals[i].Origin, payment.ReplyAccepted, "", false))
}

// rejectTime refuses a command for its age (G14). A stale one also goes to the
// dead letters: it was not judged, and somebody should know.
func (run *claimRun) rejectTime(i int, p Payment, code payment.Code) Outcome {
	detail := "issuedAt lies in the future by more than " + payment.DurationText(run.batch.Freshness.Skew) + "; check the caller's clock"
	if code == payment.CodeStaleCommand {
		detail = "issuedAt is older than " + payment.DurationText(run.batch.Freshness.Window) + "; not judged, an earlier delivery may have settled"
		run.messages = append(run.messages, deadLetter(run.topics, &run.arrivals[i], Dead{Reason: payment.DeadStale, Error: detail}))
	}
	return run.rejectClaimed(i, p, code, detail, nil)
}

func detailOf(code payment.Code) string {
	if code == payment.CodePriorAttemptUnresolved {
		return "another payment of this obligation has no outcome yet; repeat its key, or wait for its outcome"
	}
	return "this obligation was paid by another payment; to pay again on purpose, issue a command whose follows names it"
}

// rejectClaimed turns a payment that this batch opened into a rejection: the
// hold is given back, the refusal is remembered (G2, G15).
func (run *claimRun) rejectClaimed(i int, p Payment, code payment.Code, detail string, by *uuid.UUID) Outcome {
	run.rejections = append(run.rejections, rejection{p.ID, p.Namespace, p.Obligation, code, detail, by})
	return run.reject(i, p, code, detail, by)
}

func (run *claimRun) reject(i int, p Payment, code payment.Code, detail string, by *uuid.UUID) Outcome {
	p.State, p.Sends, p.Cause, p.Detail, p.BlockedBy, p.EndedAt = payment.Rejected, 0, string(code), clean(detail), by, run.now
	run.settle(p)
	run.reply(i, &p, payment.ReplyRejected, code, false)
	return Outcome{Verdict: Rejected, Code: code}
}

// settle notes what became of a new payment: for later repeats in this batch, and
// for its history, unless an earlier try whose commit was not answered wrote that; a
// rejection is news even then.
func (run *claimRun) settle(p Payment) {
	run.known[p.ID] = p
	if run.inserted[p.ID] || p.State == payment.Rejected {
		run.history = append(run.history, p)
	}
}

// judgeRepeat answers a delivery of a known key without a channel call (G2, G8).
func (run *claimRun) judgeRepeat(i int) Outcome {
	a, p := &run.arrivals[i], run.known[run.ids[i]]
	if a.Command.IssuedAt.After(p.LatestIssuedAt) {
		// Whatever it is told, the key outlives this copy: replayed later it must not
		// look like a new command (G2, G14).
		p.LatestIssuedAt, run.issued[p.ID] = a.Command.IssuedAt, a.Command.IssuedAt
		run.known[p.ID] = p
	}
	if !p.Fingerprint.Matches(&a.Command, a.Fingerprint) {
		run.reply(i, &p, payment.ReplyConflict, payment.CodeIdempotencyConflict, false)
		return Outcome{Verdict: Conflicted, Code: payment.CodeIdempotencyConflict}
	}
	switch {
	case p.State == payment.Rejected && run.batch.Again && p.Origin.same(a.Origin):
		// This very delivery was refused by an earlier try whose commit was not
		// answered: nobody was told yet.
		run.reply(i, &p, payment.ReplyRejected, payment.Code(p.Cause), false)
		return Outcome{Verdict: Rejected, Code: payment.Code(p.Cause)}
	case p.State == payment.Rejected:
		run.reply(i, &p, payment.ReplyRejected, payment.Code(p.Cause), true)
		return Outcome{Verdict: Replayed, Code: payment.Code(p.Cause)}
	case p.State.Terminal():
		run.reply(i, &p, payment.ReplyReplayed, "", true)
		return Outcome{Verdict: Replayed}
	default:
		run.reply(i, &p, payment.ReplyPending, "", true)
		return Outcome{Verdict: Pending}
	}
}

// reply records what this delivery is told and queues the message.
func (run *claimRun) reply(i int, p *Payment, kind payment.ReplyKind, code payment.Code, replayed bool) {
	origin := run.arrivals[i].Origin
	run.deliveries = append(run.deliveries, delivery{p.ID, origin, kind, code, p.State, p.Version})
	run.send(i, replyMessage(run.topics, p, origin, kind, code, replayed))
}

// send queues a message in the trace of the delivery that it answers.
func (run *claimRun) send(i int, m outbox.Message) {
	m.Trace = run.arrivals[i].Trace
	run.messages = append(run.messages, m)
}

// deadLetter carries a record on, bytes unchanged, with the reason and where it
// came from (G5).
func deadLetter(topics payment.Topics, a *Arrival, dead Dead) outbox.Message {
	o := a.Origin
	headers := make(map[string]string, len(a.Raw.Headers)+6)
	maps.Copy(headers, a.Raw.Headers)
	headers[payment.DeadHeaderReason], headers[payment.DeadHeaderError] = string(dead.Reason), clean(dead.Error)
	headers[payment.DeadHeaderTopic], headers[payment.DeadHeaderPartition] = o.Topic, strconv.Itoa(o.Partition)
	headers[payment.DeadHeaderOffset], headers[payment.DeadHeaderTimestamp] = strconv.FormatInt(o.Offset, 10), o.Time.UTC().Format(time.RFC3339Nano)
	return outbox.Message{
		ID: payment.DeadLetterID(o.Topic, o.Partition, o.Offset, o.Time), Topic: topics.DeadLetter,
		Key: a.Raw.Key, Type: "payment.deadletter", Payload: a.Raw.Value, Headers: headers,
	}
}

// HeaderText carries a header's bytes as text: as they are where that is
// possible, else in base64 under a marked name.
func HeaderText(name string, value []byte) (string, string) {
	if text := string(value); utf8.ValidString(text) && clean(text) == text {
		return name, text
	}
	return name + "-base64", base64.StdEncoding.EncodeToString(value)
}

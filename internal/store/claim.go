package store

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/settleonce/settleonce/outbox"
	"github.com/settleonce/settleonce/payment"
)

// Arrival is one delivered record, as far as it can be judged without the
// database. A record that cannot be read has Dead set and nothing else but
// Origin and Raw. A command that may not be charged whatever the database says
// has Refusal set; it is remembered under its key like an outcome (G2).
type Arrival struct {
	Origin      Origin
	Raw         Raw
	Dead        *Dead
	Refusal     *Refusal
	Identity    payment.Identity
	Command     payment.Command
	Fingerprint payment.Fingerprint
	// Namespace is the obligation's; RepayNamed its setting (G15).
	Namespace  string
	RepayNamed bool
	// ChannelIdentity is recorded: queries and resumes under another are refused.
	ChannelIdentity string
	// Admit grants the first permit with the claim; without it the payment is
	// parked.
	Admit bool
	// Trace is the traceparent that goes on with what is published of it; it must be
	// valid, or empty for none. It is not stored.
	Trace string
}

// Raw is the record itself, for its dead letter: bytes unchanged (G5).
type Raw struct {
	Key, Value []byte
	Headers    map[string]string
}

// Dead says why a record goes to the dead-letter topic.
type Dead struct {
	Reason payment.DeadLetterReason
	Error  string
}

// Refusal says why a command is rejected before anything is looked up.
type Refusal struct {
	Code   payment.Code
	Detail string
}

// Verdict is what became of an arrival.
type Verdict int

// The verdicts of a claim.
const (
	// Claimed: fresh, and its first send is permitted.
	Claimed Verdict = iota + 1
	// Parked: fresh, without a permit.
	Parked
	// Pending: a repeat of an unresolved payment.
	Pending
	// Replayed: a repeat of a payment with an outcome or rejection.
	Replayed
	// Conflicted: another content under a known key (G8).
	Conflicted
	// Rejected: refused now, and remembered.
	Rejected
	// DeadLettered: could not be read, or not be stored.
	DeadLettered
)

var verdictNames = map[Verdict]string{
	Claimed: "fresh", Parked: "parked", Pending: "pending", Replayed: "replayed",
	Conflicted: "conflict", Rejected: "rejected", DeadLettered: "dead_lettered",
}

// String returns the verdict's name in metrics and logs.
func (v Verdict) String() string { return verdictNames[v] }

// Outcome is the verdict on one arrival.
type Outcome struct {
	Verdict Verdict
	// Code says why, for rejections.
	Code payment.Code
	// Payment is set for Claimed: what to send.
	Payment *Payment
}

// Batch is a set of arrivals to claim together.
type Batch struct {
	Arrivals []Arrival
	// Lease is the fencing token of this batch, unique among all leases.
	Lease int64
	// LeaseFor is how long the claimed payments are this worker's.
	LeaseFor time.Duration
	// SendWithin is the longest time after the claim at which a permitted send
	// may still be on the wire: its deadline.
	SendWithin time.Duration
	Freshness  payment.Freshness
	// QueryFirst parks every fresh payment until its provider was asked about it:
	// commits may have been lost, and with them the memory of a send.
	QueryFirst bool
	// CheckCallers compares each caller and its namespace with the table of callers,
	// inside the claim. Where they differ nothing is claimed: ErrCallersChanged.
	CheckCallers bool
	// Announce publishes accepted events and replies for fresh payments. Kafka's
	// acknowledgement already says durable, and every message costs: off by default.
	Announce bool
	// Group and Next are stored with the claim: the offsets that follow the last
	// arrival of each partition.
	Group string
	Next  map[Partition]int64

	// Again says that this batch was claimed before under the same Lease, without
	// an answer: what it opened then may have been taken over since (G11).
	Again bool

	// judged are the payments of this call's earlier transactions. The lease that
	// opened them is this batch's too, and yet a later arrival of theirs is a
	// repeat: it must not be permitted a second send (G1).
	judged map[uuid.UUID]bool
}

// errNoLease guards the fence: 0 is what released payments carry (G11).
var errNoLease = errors.New("a claim needs a lease other than 0")

// errLostCommits says that the database is not the one it was, and that the batch
// was to be sent without asking: it is claimed again, to be asked about first.
var errLostCommits = errors.New("commits may be lost")

// Partition names a partition of a topic.
type Partition struct {
	Topic  string
	Number int
}

// Claim classifies and records the arrivals, in the order given, in one
// transaction per run of distinct obligations (usually one). It returns one
// outcome per arrival. On an error a prefix may have been recorded; claiming the
// same batch again, with the same Lease, gives the same verdicts.
func (s *Store) Claim(ctx context.Context, b Batch) ([]Outcome, error) {
	if b.Lease == 0 {
		return nil, errNoLease
	}
	b.judged = make(map[uuid.UUID]bool)
	out := make([]Outcome, 0, len(b.Arrivals))
	for rest := b.Arrivals; len(rest) > 0; {
		n := distinctRun(rest)
		outcomes, err := s.claimOrBisect(ctx, b, rest[:n], n == len(rest))
		if errors.Is(err, errLostCommits) {
			b.QueryFirst = true
			b.judged = judgedBy(b.Arrivals, out) // of this transaction, a half may be claimed already
			_, err = s.CheckInstallation(ctx)
			if err == nil {
				continue
			}
		}
		if err != nil {
			return out, err
		}
		out = append(out, outcomes...)
		rest = rest[n:]
	}
	return out, nil
}

// judgedBy are the payments that have an outcome already.
func judgedBy(arrivals []Arrival, outcomes []Outcome) map[uuid.UUID]bool {
	judged := make(map[uuid.UUID]bool, len(outcomes))
	for i := range outcomes {
		if outcomes[i].Verdict != DeadLettered {
			judged[arrivals[i].Identity.PaymentID()] = true
		}
	}
	return judged
}

// distinctRun is the length of the longest prefix in which no two payments share
// an obligation: the second one of a pair must see what became of the first.
func distinctRun(arrivals []Arrival) int {
	type place struct{ namespace, obligation string }
	seen := make(map[place]payment.Identity, len(arrivals))
	for i := range arrivals {
		a := &arrivals[i]
		if a.Dead != nil || a.Refusal != nil {
			continue
		}
		p := place{a.Namespace, a.Command.ObligationOrDefault()}
		if first, ok := seen[p]; ok && first != a.Identity {
			return i
		}
		seen[p] = a.Identity
	}
	return len(arrivals)
}

// claimOrBisect keeps one row that the database refuses from failing its batch:
// the halves are claimed in order, and a single refused arrival is dead-lettered.
func (s *Store) claimOrBisect(ctx context.Context, b Batch, arrivals []Arrival, last bool) ([]Outcome, error) {
	var outcomes []Outcome
	err := retry(ctx, func() error {
		var err error
		outcomes, err = s.claimRun(ctx, b, arrivals, last)
		b.Again = true // a failed try may have been committed
		return err
	})
	switch {
	case err == nil:
		return outcomes, nil
	case !badData(err):
		return nil, fmt.Errorf("claim %d commands: %w", len(arrivals), err)
	case len(arrivals) > 1:
		half := len(arrivals) / 2
		first, err := s.claimOrBisect(ctx, b, arrivals[:half], false)
		if err != nil {
			return nil, err
		}
		second, err := s.claimOrBisect(ctx, b, arrivals[half:], last)
		return append(first, second...), err
	case arrivals[0].Dead != nil:
		return nil, fmt.Errorf("store a dead letter: %w", err)
	default:
		dead := arrivals[0]
		dead.Dead = &Dead{Reason: payment.DeadUnstorable, Error: clean(err.Error())}
		return s.claimOrBisect(ctx, b, []Arrival{dead}, last)
	}
}

// claimRun is one transaction.
func (s *Store) claimRun(ctx context.Context, b Batch, arrivals []Arrival, last bool) ([]Outcome, error) {
	run := newClaimRun(b, arrivals, s.topics)
	err := s.inTx(ctx, run.queueReads, func(batch *pgx.Batch) error {
		if err := run.judge(); err != nil {
			return err
		}
		run.queueWrites(batch)
		if last {
			queueOffsets(batch, b.Group, b.Next)
		}
		if batch.Len() == 0 { // all fresh, and no offset to store: still to be committed
			batch.Queue("select 1")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(run.messages) > 0 {
		s.wake()
	}
	for id := range run.first {
		b.judged[id] = true
	}
	s.logClaims(run)
	return run.outcomes, nil
}

// claimRun is the state of one claim transaction.
type claimRun struct {
	batch    Batch
	topics   payment.Topics
	arrivals []Arrival
	// ids are the payments that arrivals belong to; first maps each to the
	// arrival that stands for it in the insert.
	ids   []uuid.UUID
	first map[uuid.UUID]int
	// order are the indices of first arrivals, sorted by payment id; news those of
	// payments that no earlier transaction of this call has judged.
	order, news []int

	now     time.Time
	suspect bool // commits may be lost
	// strangers says that a caller is not in the table as the batch has it.
	strangers bool
	inserted  map[uuid.UUID]bool
	sends     map[uuid.UUID]int // permits that are stored for what this batch opened
	ground    map[uuid.UUID]payment.Ground
	known     map[uuid.UUID]Payment

	outcomes   []Outcome
	history    []Payment
	rejections []rejection
	deliveries []delivery
	issued     map[uuid.UUID]time.Time
	announced  []uuid.UUID
	messages   []outbox.Message
}

type rejection struct {
	id         uuid.UUID
	namespace  string
	obligation string
	code       payment.Code
	detail     string
	blockedBy  *uuid.UUID
}

type delivery struct {
	id      uuid.UUID
	origin  Origin
	kind    payment.ReplyKind
	code    payment.Code
	state   payment.State
	version int
}

func newClaimRun(b Batch, arrivals []Arrival, topics payment.Topics) *claimRun {
	run := &claimRun{
		batch: b, topics: topics, arrivals: arrivals,
		ids: make([]uuid.UUID, len(arrivals)), first: make(map[uuid.UUID]int, len(arrivals)),
		inserted: make(map[uuid.UUID]bool, len(arrivals)), ground: map[uuid.UUID]payment.Ground{},
		sends: map[uuid.UUID]int{}, known: map[uuid.UUID]Payment{}, issued: map[uuid.UUID]time.Time{},
		outcomes: make([]Outcome, len(arrivals)), order: make([]int, 0, len(arrivals)),
	}
	for i := range arrivals {
		if arrivals[i].Dead != nil {
			continue
		}
		id := arrivals[i].Identity.PaymentID()
		run.ids[i] = id
		if _, ok := run.first[id]; !ok {
			run.first[id] = i
			run.order = append(run.order, i)
		}
	}
	// One order for all workers: two batches meet in the same row first, and wait
	// instead of deadlocking.
	slices.SortFunc(run.order, func(a, b int) int { return slices.Compare(run.ids[a][:], run.ids[b][:]) })
	for _, i := range run.order {
		if !b.judged[run.ids[i]] {
			run.news = append(run.news, i)
		}
	}
	return run
}

// fresh builds the stored form of a first arrival.
func (run *claimRun) fresh(i int) Payment {
	a := &run.arrivals[i]
	p := Payment{
		ID: run.ids[i], Identity: a.Identity, Fingerprint: a.Fingerprint, Namespace: a.Namespace,
		Obligation: a.Command.ObligationOrDefault(), OrderID: a.Command.OrderID, Follows: a.Command.Follows,
		Amount: a.Command.Amount, Currency: a.Command.Currency, CustomerID: a.Command.CustomerID,
		PaymentMethod: a.Command.PaymentMethod, Channel: a.Command.Channel, ChannelIdentity: a.ChannelIdentity,
		Metadata: a.Command.Metadata, ProviderKey: a.Identity.ProviderKey(1), State: payment.Pending, Attempt: 1,
		Origin: a.Origin, IssuedAt: a.Command.IssuedAt, LatestIssuedAt: a.Command.IssuedAt,
		CreatedAt: run.now, UpdatedAt: run.now,
	}
	if a.Refusal == nil && a.Admit && !run.batch.QueryFirst {
		p.Sends = 1
	}
	return p
}

// obligationHash is the one bigint by which an obligation is looked up. Equal
// hashes are compared in full afterwards.
func obligationHash(namespace, obligation string) int64 {
	h := fnv.New64a()
	h.Write([]byte(namespace))
	h.Write([]byte{0})
	h.Write([]byte(obligation))
	return int64(h.Sum64())
}

package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/internal/check"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/payment"
)

const (
	// probeCount is how many probes a scene publishes.
	probeCount = 20
	glance     = 300 * time.Millisecond
	copiesEach = 3
)

// wait waits so long, or returns ctx's error.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// until waits until look has no error, and says what was waited for in vain.
func (d *director) until(ctx context.Context, what string, look func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := look(ctx)
		if err == nil {
			return nil
		}
		if wait(ctx, glance) != nil {
			return fmt.Errorf("waited %s for %s: %w", patience, what, err)
		}
	}
}

// ours are the topics of the installation; names are these and the cluster's own.
func (d *director) ours() []string {
	return append([]string{d.topics.Commands, d.topics.Replies, d.topics.Events, d.topics.DeadLetter}, d.topics.Requery[:]...)
}

func (d *director) names() []string {
	return append(d.ours(), "__consumer_offsets", "__transaction_state")
}

// every requires something of every partition of every topic.
func (d *director) every(ctx context.Context, topics []string, ok func(kafka.Replicas) bool) error {
	for _, topic := range topics {
		all, err := d.fleet.Client().Replicas(ctx, topic)
		if err != nil {
			return err
		}
		if len(all) == 0 {
			return fmt.Errorf("%s has no partitions", topic)
		}
		for _, r := range all {
			if !ok(r) {
				return fmt.Errorf("%s is not as it should be: %+v", topic, r)
			}
		}
	}
	return nil
}

// whole waits until every copy of everything is in step.
func (d *director) whole(ctx context.Context, topics []string) error {
	return d.until(ctx, "all copies to be in step", func(ctx context.Context) error {
		return d.every(ctx, topics, func(r kafka.Replicas) bool { return r.Leader > 0 && len(r.InSync) == copiesEach })
	})
}

// copies requires what production needs: three copies, two of which acknowledge, and no leader that is
// behind.
func (d *director) copies(ctx context.Context) error {
	if err := d.whole(ctx, d.names()); err != nil {
		return err
	}
	if err := d.every(ctx, d.names(), func(r kafka.Replicas) bool { return len(r.Brokers) == copiesEach }); err != nil {
		return err
	}
	found, err := d.fleet.Client().DescribeTopics(ctx, d.ours())
	if err != nil {
		return err
	}
	for _, topic := range found {
		if topic.Replication != copiesEach || topic.Config["min.insync.replicas"] != "2" || topic.Config["unclean.leader.election.enable"] != "false" {
			return fmt.Errorf("topic %s is not safe: %+v", topic.Name, topic)
		}
	}
	return nil
}

// commands makes plain commands, each for an order of its own.
func commands(n int) []payment.Command {
	out := make([]payment.Command, n)
	for i := range out {
		key := uuid.New()
		out[i] = payment.Command{
			IdempotencyKey: key, Caller: "shop", Operation: payment.OperationCharge, OrderID: "order-" + key.String(), Amount: 1234, Currency: "EUR",
			CustomerID: "cust-1", PaymentMethod: "tok_visa", Channel: "sim", IssuedAt: time.Now().UTC().Truncate(time.Millisecond),
		}
	}
	return out
}

func (d *director) messages(list []payment.Command) []kafka.Message {
	out := make([]kafka.Message, len(list))
	for i := range list {
		out[i] = kafka.Message{Topic: d.topics.Commands, Key: []byte(list[i].IdempotencyKey.String()), Value: list[i].AppendJSON(nil)}
	}
	return out
}

// pay publishes commands (some fresh ones where there are none), twice, and waits until each has
// succeeded and Kafka has all there is to tell of it. Each must have been charged once.
func (d *director) pay(ctx context.Context, when string, list []payment.Command) error {
	if list == nil {
		list = commands(probeCount)
	}
	begun := time.Now()
	for range 2 {
		err := d.until(ctx, "the broker to acknowledge "+when, func(ctx context.Context) error {
			return d.publisher.Publish(ctx, d.messages(list)...)
		})
		if err != nil {
			return err
		}
	}
	d.probes += len(list)
	if err := d.until(ctx, "payments "+when, func(ctx context.Context) error { return d.paid(ctx, list) }); err != nil {
		return err
	}
	d.sayf("%d payments %s: %.1f s", len(list), when, time.Since(begun).Seconds())
	return d.ledger(ctx, list, func(c sim.Charge) {
		if c.Settled != 1 {
			d.violationf("G1", "%s was charged %d times", c.ProviderKey, c.Settled)
		}
	})
}

// paid looks into the database whether all have succeeded, and nothing of them is in the outbox.
func (d *director) paid(ctx context.Context, list []payment.Command) error {
	keys := make([][]byte, len(list))
	for i := range list {
		keys[i] = []byte(list[i].IdempotencyKey.String())
	}
	var succeeded, unpublished int
	err := d.query(ctx, `SELECT (SELECT count(*) FROM settleonce.payments WHERE id = ANY ($1) AND state = $2),
		(SELECT count(*) FROM settleonce.outbox WHERE aggregateid = ANY ($3))`,
		[]any{identities(list), int16(payment.Succeeded), keys}, &succeeded, &unpublished)
	if err == nil && (succeeded < len(list) || unpublished > 0) {
		err = fmt.Errorf("%d of %d have succeeded, %d messages are unpublished", succeeded, len(list), unpublished)
	}
	return err
}

func identities(list []payment.Command) []uuid.UUID {
	out := make([]uuid.UUID, len(list))
	for i := range list {
		out[i] = list[i].Identity().PaymentID()
	}
	return out
}

// query reads one row from whichever database server takes writes.
func (d *director) query(ctx context.Context, sql string, args []any, into ...any) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, d.fleet.DSN())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return conn.QueryRow(ctx, sql, args...).Scan(into...)
}

// ledger shows what the provider has of the commands; it must have all.
func (d *director) ledger(ctx context.Context, list []payment.Command, look func(sim.Charge)) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.fleet.SimURL()+"/ledger", http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	books := map[uuid.UUID]sim.Charge{}
	for lines := json.NewDecoder(response.Body); ; {
		var c sim.Charge
		if err := lines.Decode(&c); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("read the ledger: %w", err)
		}
		books[c.ProviderKey] = c
	}
	for i := range list {
		c, ok := books[list[i].Identity().ProviderKey(1)]
		if !ok {
			return fmt.Errorf("the provider does not know %s", list[i].IdempotencyKey)
		}
		look(c)
	}
	return nil
}

// watchOffsets looks at the committed offsets until ctx ends; none may go back (G11).
func (d *director) watchOffsets(ctx context.Context) (seen []check.Violation) {
	last := map[int]int64{}
	for wait(ctx, glance) == nil {
		now, err := d.fleet.Client().CommittedOffsets(ctx, "settleonce-consumer", d.topics.Commands)
		if err != nil {
			continue // no coordinator answers
		}
		for partition, offset := range now {
			if before, ok := last[partition]; ok && offset < before {
				seen = append(seen, check.Violation{
					Guarantee: "G11", Text: fmt.Sprintf("the committed offset of partition %d went back from %d to %d", partition, before, offset),
				})
			}
			last[partition] = offset
		}
	}
	return seen
}

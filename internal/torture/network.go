package torture

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"time"

	"github.com/settleonce/settleonce/internal/apachekafka"
	"github.com/settleonce/settleonce/internal/fleet"
)

// join puts proxies between the workers and database and broker, and returns the
// settings that lead there. The fleet itself goes the direct way.
func (t *tormentor) join(ctx context.Context, f *fleet.Fleet) ([]string, error) {
	dsn, err := url.Parse(f.DSN())
	if err != nil {
		return nil, fmt.Errorf("read the database's address: %w", err)
	}
	t.postgres, t.kafka = newPostgresProxy(t.losses), newKafkaProxy(t.losses)
	via, brokers, err := lead(ctx, t.postgres, dsn, t.kafka, f.Brokers())
	return addresses(via, brokers), err
}

// lead puts the proxies before a database and brokers, and returns the addresses that
// lead there.
func lead(ctx context.Context, postgres *proxy, dsn *url.URL, kafka *proxy, brokers []string) (string, []string, error) {
	via := *dsn
	var err error
	if via.Host, err = postgres.via(ctx, dsn.Host); err != nil {
		return "", nil, err
	}
	var through []string
	for _, address := range brokers {
		own, err := kafka.via(ctx, address)
		if err != nil {
			return "", nil, err
		}
		through = append(through, own)
	}
	return via.String(), through, nil
}

// addresses are the settings that lead to a database and brokers.
func addresses(dsn string, brokers []string) []string {
	return []string{"SETTLEONCE_POSTGRES_DSN=" + dsn, "SETTLEONCE_KAFKA_BROKERS=" + strings.Join(brokers, ",")}
}

// leave takes the proxies away again.
func (t *tormentor) leave() {
	for _, p := range []*proxy{t.postgres, t.kafka, t.edge} {
		if p != nil {
			_ = p.close() // the port is free either way
		}
	}
	for _, g := range t.guests {
		g.leave()
	}
	t.shop.leave()
}

// effects is what came of the faults.
func (t *tormentor) effects() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := maps.Clone(t.did)
	for kind, n := range t.losses.counts() {
		out[string(kind)] = n
	}
	for _, g := range t.guests {
		for kind, n := range g.losses.counts() {
			out[g.note(string(kind))] = n
		}
	}
	return out
}

// note counts an effect.
func (t *tormentor) note(what string, n int) {
	if n > 0 {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.did[what] += n
	}
}

// brokers is how many there are, so that leaders can move.
const brokers = 3

// apache runs so many nodes. A killed one may come back once the controller has
// missed it, which is to be soon.
func apache() apachekafka.Config {
	return apachekafka.Config{
		StartTimeout: 4 * time.Minute, // three on a machine that is busy
		Brokers:      brokers, Settings: map[string]string{"broker.session.timeout.ms": "6000", "broker.heartbeat.interval.ms": "1000"},
	}
}

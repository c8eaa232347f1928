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
	return lead(ctx, t.postgres, dsn, t.kafka, f.Brokers())
}

// lead puts the proxies before a database and brokers, and returns the settings that
// lead there.
func lead(ctx context.Context, postgres *proxy, dsn *url.URL, kafka *proxy, brokers []string) ([]string, error) {
	via := *dsn
	var err error
	if via.Host, err = postgres.via(ctx, dsn.Host); err != nil {
		return nil, err
	}
	var addresses []string
	for _, address := range brokers {
		own, err := kafka.via(ctx, address)
		if err != nil {
			return nil, err
		}
		addresses = append(addresses, own)
	}
	return []string{"SETTLEONCE_POSTGRES_DSN=" + via.String(), "SETTLEONCE_KAFKA_BROKERS=" + strings.Join(addresses, ",")}, nil
}

// leave takes the proxies away again.
func (t *tormentor) leave() {
	for _, p := range []*proxy{t.postgres, t.kafka, t.edge} {
		if p != nil {
			_ = p.close() // the port is free either way
		}
	}
	t.behind.leave()
}

// effects is what came of the faults.
func (t *tormentor) effects() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := maps.Clone(t.did)
	for kind, n := range t.losses.counts() {
		out[string(kind)] = n
	}
	maps.Copy(out, t.behind.effects())
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

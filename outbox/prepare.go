package outbox

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// prepareLoop takes producer epochs: for shards that were just leased, whose
// epoch is old, or whose numbering the broker lost.
func (r *Relay) prepareLoop(ctx context.Context) {
	for {
		list, next := r.board.unprepared(time.Now())
		if len(list) > 0 {
			r.prepare(ctx, list)
			continue
		}
		if !pause(ctx, next, r.prepareSoon) {
			return
		}
	}
}

// prepare takes an epoch for each shard and stores the producers' ids under the
// lease. Only then are the shards published (G10, B19).
func (r *Relay) prepare(ctx context.Context, list []*shard) {
	ctx, cancel := context.WithTimeoutCause(ctx, r.cfg.share(), errKafkaSlow)
	defer cancel()
	taken, err := r.takeEpochs(ctx, list)
	if len(taken) > 0 {
		if storeErr := r.storeProducers(ctx, taken); storeErr != nil {
			taken, err = nil, storeErr
		}
	}
	if failed := r.board.prepared(list, taken, time.Now()); failed > 0 && err != nil {
		r.stats.publishErrors.Add(1)
		r.log.Warn().Err(err).Int("shards", failed).Msg("outbox: cannot take over the producers of shards, messages wait")
	}
	r.Wake()
}

// takeEpochs asks for all shards at once; one that fails waits for the next try.
func (r *Relay) takeEpochs(ctx context.Context, list []*shard) (taken []*shard, first error) {
	errs := make([]error, len(list))
	var wg sync.WaitGroup
	for i, s := range list {
		wg.Go(func() { errs[i] = r.takeEpoch(ctx, s) })
	}
	wg.Wait()
	for i, s := range list {
		if errs[i] == nil {
			taken = append(taken, s)
		} else if first == nil {
			first = errs[i]
		}
	}
	return taken, first
}

func (r *Relay) takeEpoch(ctx context.Context, s *shard) (err error) {
	if s.producer != nil {
		return s.producer.Renew(ctx)
	}
	s.producer, err = r.cfg.Kafka.NewFencedProducer(ctx, r.cfg.transactionalID(s.id))
	return err
}

// storeProducers writes down which producer has which shard. Shards whose lease
// is gone are left unprepared; the next renewal drops them.
func (r *Relay) storeProducers(ctx context.Context, taken []*shard) error {
	n := len(taken)
	l, ids, epochs := leasesOf(taken), make([]int64, n), make([]int32, n)
	byID := make(map[int16]*shard, n)
	for i, s := range taken {
		ids[i], epochs[i] = s.producer.ProducerID(), int32(s.producer.Epoch())
		byID[s.id] = s
	}
	rows, err := r.cfg.Pool.Query(ctx, storeProducerSQL, r.owner, l.shards, l.epochs, ids, epochs, r.quiet())
	if err != nil {
		return fmt.Errorf("store producers of %d shards: %w", n, err)
	}
	var id int16
	var quiet float64
	_, err = pgx.ForEachRow(rows, []any{&id, &quiet}, func() error {
		r.stored(byID[id], time.Duration(quiet*float64(time.Second)))
		return nil
	})
	if err != nil {
		return fmt.Errorf("store producers of %d shards: %w", n, err)
	}
	return nil
}

// stored makes a shard ready, after the quiet time where its producer changed.
func (r *Relay) stored(s *shard, quiet time.Duration) {
	id := s.producer.ProducerID()
	if s.storedProducer != nil && *s.storedProducer != id {
		r.stats.producerChanges.Add(1)
		r.log.Error().Int16("shard", s.id).Int64("stored_producer", *s.storedProducer).Int64("producer", id).Stringer("quiet", quiet).
			Msg("outbox: the broker forgot the shard's transactional id, so an old relay that wakes up would not be shut out; " +
				"waiting until its lease and last publish must be over; raise transactional.id.expiration.ms or renew more often")
	}
	s.storedProducer = &id
	r.board.ready(s, time.Now().Add(quiet), time.Now().Add(jitter(r.cfg.RenewProducer*2/3)))
}

// quiet is how long to wait when the old owner's producer is not shut out: its
// lease, which may just have been renewed, and a publish that began at its end.
func (r *Relay) quiet() time.Duration { return r.cfg.Lease + r.cfg.share() }

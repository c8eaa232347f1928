/* The outbox relay for one shard and one key: versions 1..N of a payment, two relays that take the lease from each other at any time,
   each of which may stop between any two steps, or crash. The partition refuses an epoch older than the newest that wrote to it.

   The world:  N  versions      TURNS  leases that each relay takes     RENEW  producer epochs are renewed between batches
               EXPIRE  the broker forgets the transactional id once: the next producer has another id, and no epoch shuts the old one out
   The rules:  see the switches; each one left out breaks G10 (order in the topic) or G5 (every row comes out) (model/checks.txt). */
#ifndef N
#define N 3
#endif
#ifndef TURNS
#define TURNS 2
#endif
#ifndef RENEW
#define RENEW 0
#endif
#ifndef EXPIRE
#define EXPIRE 0
#endif
#ifndef FENCE      /* batches carry the producer's id and epoch: internal/kafka/fenced.go encode; kafka-go's Writer does not */
#define FENCE 1
#endif
#ifndef CHECK      /* the statement that reads checks the lease: outbox/sql.go readSQL, outbox/sql.go heldSQL */
#define CHECK 1
#endif
#ifndef MARKCHECK  /* the statement that marks checks it too: outbox/sql.go markSQL */
#define MARKCHECK 1
#endif
#ifndef STORED     /* the statement that stores the producer's id checks it as well: outbox/sql.go storeProducerSQL, outbox/prepare.go storeProducers */
#define STORED 1
#endif
#ifndef INITLAST   /* wrong: the producer epoch is taken after the rows were read. outbox/prepare.go prepare takes it before */
#define INITLAST 0
#endif
#ifndef EAGER      /* wrong: the next version goes out before the previous one is marked. outbox/read.go take leaves it for later */
#define EAGER 0
#endif
#ifndef MARKFIRST  /* wrong: marked before it is published. outbox/lane.go cycle publishes what an earlier exchange read, and marks in the next one */
#define MARKFIRST 0
#endif
#ifndef QUIET      /* a changed producer id is waited out: outbox/sql.go storeProducerSQL, outbox/prepare.go stored */
#define QUIET 1
#endif
#ifndef COMMITTED  /* rows are published after the commit that wrote them: outbox/enqueue.go Queue, internal/store/apply.go applyRound */
#define COMMITTED 1
#endif

hidden byte G10_order_in_the_topic = 1;
hidden byte G5_every_row_comes_out = 1;
hidden byte G7_only_what_was_committed = 1;

byte lease = 0;      /* settleonce.outbox_shards.epoch */
byte kafka = 0;      /* newest producer epoch given out */
byte wrote = 0;      /* newest epoch that wrote to the partition */
bool other = false;  /* the producer id changed: epochs count from the start, and the old id's are not compared with them */
byte oldTop = 0;     /* newest epoch under the old id */
byte top = 0;        /* newest version in the topic */
byte rows = 0;       /* rows that are committed in the outbox */
bool marked[N + 1];
bool seen[N + 1];    /* is in the topic */
byte busy = 0;       /* relays between the read and the end of the publish, under the old producer id */

/* Transactions add the versions one after the other, each under its payment's lock: internal/store/apply.go publish. */
proctype writer() {
  do
  :: rows < N -> rows++
  :: else -> break
  od
}

proctype relay(byte last) {
  byte turns = 0, my, k, v; bool id;
  do
  :: turns < TURNS || last ->
     turns++;
     atomic { lease++; my = lease };                                   /* outbox/tend.go claim */
     if :: turns > TURNS -> turns = TURNS + 1 :: else fi;
#if !INITLAST
     atomic { kafka++; k = kafka; id = other };                        /* outbox/prepare.go takeEpoch */
     if :: STORED && lease != my -> goto lost :: !STORED || lease == my fi;   /* outbox/prepare.go storeProducers */
#if EXPIRE
     (!QUIET || !other || busy == 0);                                  /* outbox/prepare.go quiet: until the old owner's lease and last publish are over */
#endif
#endif
     do
     :: atomic {                                                       /* outbox/lane.go exchange, outbox/read.go roundTrip */
          v = 1;
          do :: v <= N && marked[v] -> v++ :: else -> break od;
          if
          :: CHECK && lease != my -> break
          :: v > N -> break
          :: v <= N && (!CHECK || lease == my) && (v <= rows || !COMMITTED) ->
#if EXPIRE
             if :: !id -> busy++ :: else fi
#else
             skip
#endif
          fi
        };
#if INITLAST
        atomic { kafka++; k = kafka; id = other };
#endif
#if MARKFIRST
        atomic { if :: !MARKCHECK || lease == my -> marked[v] = true :: else -> break fi };
        if :: break :: skip fi;
#endif
publish:
        atomic {                                                       /* internal/kafka/fenced.go PublishFenced */
#if EXPIRE
          if :: !id && busy > 0 -> busy-- :: else fi;
#endif
          if
          :: FENCE && ((id == other && k < wrote) || (id != other && k < oldTop)) -> break   /* refused: internal/kafka/fencedsettle.go settle */
          :: else ->
             if :: id == other -> wrote = k :: else -> oldTop = k fi;
             assert(G10_order_in_the_topic == 0 || v >= top);
             assert(G7_only_what_was_committed == 0 || v <= rows);
             seen[v] = true;
             if :: v > top -> top = v :: else fi
          fi
        };
        if :: !last || turns <= TURNS -> break :: true fi;              /* crash between publish and mark: crashpoint.RelayPublished */
#if EAGER
        if :: v < N && v < rows -> v++; goto publish :: else fi;
#endif
#if !MARKFIRST
        atomic { if :: !MARKCHECK || lease == my -> marked[v] = true :: else -> break fi }   /* outbox/settled.go queue */
#endif
#if RENEW
        ; if
        :: atomic { kafka++; k = kafka };                               /* outbox/shard.go expireProducer, outbox/prepare.go takeEpoch */
           if :: STORED && lease != my -> break :: !STORED || lease == my fi
        :: true
        fi
#endif
     od;
lost:
     if :: turns > TURNS -> break :: else fi
  :: else -> break
  od
}

#if EXPIRE
active proctype expiry() { atomic { kafka > 0 && !other -> other = true; oldTop = wrote; wrote = 0; kafka = 0 } }
#endif

init {
  atomic { run writer(); run relay(0); run relay(0) };
  timeout;
  lease++;                                                             /* whoever is left takes over in the end */
  run relay(1);
  timeout;
  assert(G5_every_row_comes_out == 0 || (seen[1] && seen[2] && seen[N]))
}

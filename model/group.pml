/* The consumer group and one partition of N records: two members that own it one after the other, each from the moment that the group gives it
   the partition. A member claims what it was handed in any order, finishes it, and commits how far it is. It may stop between any two steps, for
   ever or until long after the group gave the partition to the other, of which nobody tells it in time: it goes on, and finishes what is its
   no more. That needs no rule: what is finished is claimed, and what an old owner commits the group refuses.

   The rules:  see the switches; each one left out breaks G5 or G11 (model/checks.txt). */
#ifndef N
#define N 3
#endif
#ifndef GENERATION  /* commits name their generation, and the group takes none of an older one (G11): internal/kafka/generation.go commit */
#define GENERATION 1
#endif
#ifndef HOLE        /* the offset is committed as far as every record before it is finished (G5): internal/kafka/tracker.go advance */
#define HOLE 1
#endif
#ifndef CLAIMFIRST  /* a record is finished when its claim, downstream its effect, is committed, not before (G6): consumer/lane.go claim, consumer/inbox/inbox.go handle */
#define CLAIMFIRST 1
#endif

hidden byte G5_nothing_skipped = 1;
hidden byte G11_old_owner_commits_nothing = 1;

byte generation = 0, committed = 0;
bool claimed[N];              /* settleonce.payments */
typedef tracker { byte at = 0; bool begun = false; bool own[N]; bool finished[N] };
tracker t[2];                 /* internal/kafka/tracker.go tracker, of each member */

/* consumer/lane.go run */
proctype lane(byte m) {
  byte r;
  t[m].begun;
  do
  :: atomic { r = t[m].at; do :: r < N - 1 -> r++ :: break od; r < N && !t[m].own[r] -> t[m].own[r] = true };
     if
     :: CLAIMFIRST -> claimed[r] = true; t[m].finished[r] = true         /* consumer/lane.go claimUntilDone, internal/kafka/delivery.go Finish */
     :: !CLAIMFIRST -> t[m].finished[r] = true; claimed[r] = true
     fi
  :: break                                                              /* its process ends */
  od
}

/* internal/kafka/generation.go commitLoop */
proctype commits(byte m) {
  byte next, r;
  atomic { generation == m -> t[m].at = committed; next = committed; t[m].begun = true };   /* internal/kafka/assign.go assign */
  do
  :: atomic {                                                           /* internal/kafka/generation.go uncommitted, internal/kafka/tracker.go committable */
       r = next;
       do
       :: r < N && (t[m].finished[r] || (!HOLE && r + 1 < N && t[m].finished[r + 1])) -> r++
       :: else -> break
       od;
       r > next -> next = r };
     atomic {                                                           /* it arrives at the group, now or much later */
       if
       :: GENERATION && generation != m
       :: else ->
          assert(G11_old_owner_commits_nothing == 0 || generation == m);
          committed = next;
          r = 0;
          do
          :: r < committed -> assert(G5_nothing_skipped == 0 || claimed[r]); r++
          :: else -> break
          od
       fi;
       r = 0 }
  :: break
  od
}

/* A session runs out, a member comes or leaves: the group gives the partition to the other. */
active proctype group() { if :: generation = 1 :: true fi }

init { atomic { run lane(0); run commits(0); run lane(1); run commits(1) } }

/* The budget of a channel's queries, which two reconcilers share, and its limit of requests, which queries share with sends (G13). Payments
   that nobody has an answer for are due at once, as after an outage. Time is counted here, in seconds; a second may pass between any two steps.
   What a channel is asked counts when the budget gives it, one at a time.

   The world:  RATE  what the budget allows a second      LIMIT  the channel's requests a second, 0: no limit      SECONDS  that pass
   The rules:  see the switches; each one left out breaks G13 (model/checks.txt). */
#ifndef RATE
#define RATE 1
#endif
#ifndef LIMIT
#define LIMIT 0
#endif
#ifndef SECONDS
#define SECONDS 2
#endif
#ifndef TOKENS      /* the budget gives what is in its bucket: internal/store/budget.go takeQueries */
#define TOKENS 1
#endif
#ifndef KEPT        /* and the reconciler keeps to that: reconciler/check.go ask */
#define KEPT 1
#endif
#ifndef BREAKER     /* nothing while the channel is closed: internal/store/budget.go TakeQueries. A process hears of that late: internal/settle/gate.go Open */
#define BREAKER 1
#endif
#ifndef WITHIN      /* the channel's limit bounds the budget: internal/store/budget.go takeQueries */
#define WITHIN 1
#endif
#ifndef OWED        /* sends wait for what queries took of it: internal/store/budget.go takeQueries */
#define OWED 1
#endif
#ifndef PUTOFF      /* a check that was stopped is not one of the three: internal/settle/checks.go PutOff */
#define PUTOFF 1
#endif

hidden byte G13_budget = 1;
hidden byte G13_rate_limit = 1;
hidden byte G13_closed_is_not_asked = 1;
hidden byte G13_three_queries = 1;

#define PAYMENTS 2
#define FLOW ((WITHIN && LIMIT > 0 && LIMIT < RATE) -> LIMIT : RATE)
#define TIERS 3                     /* payment/message.go Tiers */

byte now = 0;
/* settleonce.channel_budgets */
short tokens = 1, allowed = 1;
byte refilled = 0, topped = 0;
bool closed = false;
bool heard[2];                      /* each process's copy of that */
byte made = 0, sent = 0;            /* requests */
/* settleonce.open_payments */
byte queries[PAYMENTS], asked[PAYMENTS];
bool lease[PAYMENTS], review[PAYMENTS];

inline counted(p) {                 /* internal/settle/checks.go counted, internal/settle/rules.go unanswered */
  queries[p]++;
  if
  :: queries[p] >= TIERS ->
     assert(G13_three_queries == 0 || asked[p] == TIERS);
     review[p] = true
  :: else
  fi
}

inline topUp() {                    /* internal/store/budget.go refillSubmits */
  allowed = allowed + LIMIT * (now - topped); topped = now;
  if :: allowed > 1 && allowed > LIMIT -> allowed = (LIMIT > 1 -> LIMIT : 1) :: else fi
}

/* One statement under the lock of the channel's row: internal/store/budget.go withBudget, internal/store/budget.go takeQueries */
inline take() {
  got = false;
  if
  :: closed && BREAKER
  :: else ->
     tokens = tokens + FLOW * (now - refilled); refilled = now;
     if :: tokens > 1 && tokens > FLOW -> tokens = (FLOW > 1 -> FLOW : 1) :: else fi;
     if
     :: tokens >= 1 || !TOKENS -> got = true; if :: tokens >= 1 -> tokens-- :: else fi
     :: else
     fi
  fi
}

proctype reconciler(byte me) {
  byte p; bool got;
  do
  :: atomic {                                                           /* internal/store/due.go PickDue */
       if
       :: !lease[0] && !review[0] -> p = 0
       :: !lease[1] && !review[1] -> p = 1
       fi;
       lease[p] = true };
     got = false;
     if
     :: !heard[me] ->                                                   /* reconciler/check.go ask */
        atomic {
          take();
          if :: !KEPT -> got = true :: else fi;
          if
          :: got ->
             assert(G13_closed_is_not_asked == 0 || !closed);
             made++; asked[p]++;
             assert(G13_budget == 0 || made <= RATE * now + RATE);       /* a second's worth is the most it holds */
#if LIMIT
             topUp(); if :: OWED -> allowed = (allowed - 1 < 0 - LIMIT -> 0 - LIMIT : allowed - 1) :: else fi;
             assert(G13_rate_limit == 0 || made + sent <= LIMIT * now + 2 * LIMIT)   /* what both buckets hold, and no more */
#endif
          :: else
          fi }
     :: heard[me]
     fi;
     atomic {
       if
       :: got -> counted(p)                                             /* no answer */
       :: !got -> if :: PUTOFF :: !PUTOFF -> counted(p) fi              /* internal/settle/checks.go PutOff */
       fi;
       lease[p] = false; p = 0; got = false }
  od
}

#if LIMIT
/* internal/settle/gate.go Reserve, internal/store/budget.go takeSubmits */
active proctype sender() {
  do
  :: atomic { topUp(); allowed >= 1 -> allowed--; sent++;
       assert(G13_rate_limit == 0 || made + sent <= LIMIT * now + 2 * LIMIT) }
  od
}
#endif

active proctype clock() { do :: now < SECONDS -> now++ :: break od }

/* Another process sees the channel fail: internal/store/budget.go observe. Each one hears of it in its own time: internal/store/budget.go SyncChannel */
active proctype breaker() { if :: closed = true :: true fi }
active proctype news() { do :: atomic { closed && !heard[0] -> heard[0] = true } :: atomic { closed && !heard[1] -> heard[1] = true } od }

init { atomic { run reconciler(0); run reconciler(1) } }

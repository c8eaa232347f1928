/* A second attempt of a payment, with a provider key of its own (P33). The first was sent, its answer may come late, or never; an
   operator may open the second; answers, queries and callbacks for either come in any order, also again.

   The world:  BROKEN  the provider breaks its word once: what it proved absent is executed after all
   The rules:  see the switches; each one left out breaks a guarantee (model/checks.txt). */
#ifndef BROKEN
#define BROKEN 0
#endif
#ifndef EARLY       /* "not found" means nothing while the lookup may lag or a send may be alive; 1: the item says "proven". channel/rules.go NotFound */
#define EARLY 0
#endif
#ifndef PROVEN      /* a later attempt takes proof that nothing came of the one before: internal/settle/orders.go undead; 2: the item's word will do */
#define PROVEN 1
#endif
#ifndef ATTEMPT     /* an answer knows the attempt it belongs to: internal/settle/attempts.go otherAttempt */
#define ATTEMPT 1
#endif
#ifndef PAID        /* success of another attempt is kept until the current one is resolved: internal/settle/attempts.go paidBy */
#define PAID 1
#endif
#ifndef STOP        /* and forbids the send of one that was not sent: internal/settle/attempts.go paidBy, internal/settle/checks.go forbidden */
#define STOP 1
#endif
#ifndef REFUSE      /* nobody closes as not executed what is known to be paid: internal/settle/orders.go contradicted */
#define REFUSE 1
#endif
#ifndef ITEM        /* a second success is a thing for a person: internal/settle/attempts.go secondCharge */
#define ITEM 1
#endif
#ifndef CLOSE       /* nobody closes as not executed what may still be executed, or cannot be proven absent: internal/settle/orders.go shows;
                       2: the item's word will do */
#define CLOSE 1
#endif
#ifndef CONFLICT    /* success against an outcome is a thing for a person: internal/settle/rules.go conflict */
#define CONFLICT 1
#endif

hidden byte G1_one_charge = 1;
hidden byte G3_no_guess = 1;
hidden byte G9_conflict_is_seen = 1;
hidden byte G11_success_wins = 1;
hidden byte G11_no_permit_after_success = 1;

mtype = { REVIEW, SUCC, DECL, NONE, OUT, ABSENT, YES, NO };
mtype state = REVIEW;
byte attempt = 1, sends = 1, paid = 0, by = 0;   /* settleonce.payments, settleonce.open_payments */
bool nomore = false, conflict = false;
mtype st[3] = NONE;                              /* what became of the attempt's one send, at the provider */
bool says[3];                                    /* an item says that the provider proves the attempt absent */
bool heard[3];                                   /* its success was told to us */
byte charges = 0, told = 0;
bool broke = false;

inline execute(n) {
  st[n] = YES; charges++;
  assert(G1_one_charge == 0 || BROKEN || charges <= 1);
  assert(G3_no_guess == 0 || BROKEN || state != DECL)
}

proctype provider() {
  do
  :: atomic { st[1] == OUT -> if :: execute(1) :: st[1] = NO :: st[1] = ABSENT fi }
  :: atomic { st[2] == OUT -> if :: execute(2) :: st[2] = NO :: st[2] = ABSENT fi }
  :: atomic { BROKEN && !broke && st[1] == ABSENT -> broke = true; execute(1) }
  od
}

/* internal/store/apply.go add */
inline ends(x, n) {
  assert(G3_no_guess == 0 || BROKEN || x != DECL || charges == 0);
  assert(G11_success_wins == 0 || x != DECL || (!heard[1] && !heard[2]));
  state = x; by = n
}

/* internal/settle/rules.go submitAnswer, internal/settle/checks.go queryAnswer; under the payment's lock: internal/store/apply.go applyRound */
inline decide(n, a) {
  if :: a == YES -> heard[n] = true :: else fi;
  if
  :: state != REVIEW ->                                                  /* internal/settle/rules.go succeeded, internal/settle/rules.go conflict */
     if :: a == YES && CONFLICT && (state == DECL || by != n) -> conflict = true :: else fi
  :: state == REVIEW && ATTEMPT && n != attempt ->                       /* internal/settle/attempts.go otherAttempt */
     if
     :: a == YES && sends == 0 && STOP -> ends(SUCC, n)                  /* internal/settle/attempts.go neverSent */
     :: a == YES && !(sends == 0 && STOP) ->
        if :: STOP -> nomore = true :: else fi;
        if :: PAID -> paid = n :: else fi
     :: else
     fi
  :: state == REVIEW && !(ATTEMPT && n != attempt) ->
     if
     :: a == YES ->
        if :: paid && ITEM -> conflict = true :: else fi;
        ends(SUCC, n)
     :: a == NO && paid -> ends(SUCC, paid)                              /* internal/settle/attempts.go endPaid */
     :: a == NO && !paid -> ends(DECL, n)
     :: a == ABSENT ->                                                   /* internal/settle/attempts.go absent */
        if :: paid -> ends(SUCC, paid) :: else fi
     fi
  fi
}

/* Answers of sends, queries and callbacks, late and again. */
proctype teller() {
  do
  :: atomic { told < 5 && (st[1] == YES || st[1] == NO) -> told++; decide(1, st[1]) }
  :: atomic { told < 5 && (st[2] == YES || st[2] == NO || st[2] == ABSENT) -> told++; decide(2, st[2]) }
  od
}

/* The queries of the slow watch that find nothing: internal/settle/checks.go notFound. The provider has not seen the send, or not shown it. */
proctype watch() {
  do
  :: atomic { state == REVIEW && !says[attempt] && sends > 0 && (st[attempt] == ABSENT || (EARLY && st[attempt] == OUT)) -> says[attempt] = true }
  od
}

/* internal/settle/desk.go OpenAttempt, internal/settle/desk.go Resolve */
proctype operator() {
  do
  :: atomic { state == REVIEW && attempt == 1 && !paid && !heard[1] && (!PROVEN || (PROVEN == 1 && (st[1] == ABSENT || st[1] == NO)) || (PROVEN == 2 && says[1])) ->
       attempt = 2; sends = 0; nomore = false }                          /* internal/settle/orders.go OpenAttempt */
  :: atomic { state == REVIEW && (!paid || !REFUSE) && (!CLOSE || (CLOSE == 1 && st[attempt] == ABSENT) || (CLOSE == 2 && says[attempt]) || sends == 0) -> ends(DECL, attempt) }   /* internal/settle/orders.go MayResolve */
  od
}

/* internal/settle/checks.go Permitted, internal/settle/attempts.go ordered */
proctype worker() {
  do
  :: atomic { state == REVIEW && attempt == 2 && sends == 0 && !nomore ->
       assert(G11_no_permit_after_success == 0 || !heard[1]);
       sends = 1; st[2] = OUT }
  od
}

init {
  atomic { st[1] = OUT; run provider(); run teller(); run watch(); run operator(); run worker() };
  timeout;
  assert(G9_conflict_is_seen == 0 || !heard[1] || !heard[2] || conflict);
  assert(G11_success_wins == 0 || state != DECL || conflict || (!heard[1] && !heard[2]))
}

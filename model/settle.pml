/* One payment on its way from its command to its end: claim, permit, send, query, finalize, replay; workers that stop between any two
   steps and wake up later, a network that delays and loses, a provider that may forget the key and whose lookup may lag. Time is
   not counted: a lease, a deadline, the provider's memory may end at any moment that the rules allow, a lookup catches up at any time.
   What stands for what in the code is said at each step; a test checks that those places exist. docs/model.md explains.

   The world: what a channel promises (channel/capabilities.go Capabilities) and what may go wrong.
     IDEMP    a provider key is executed once, as long as it is remembered       PINNED   a repeat gets the failure that was answered first
     QUERY    there is a lookup                  LAG     it may be late          PROOF    its "not found" is proof, otherwise it may miss a charge
     FORGET   the provider may forget the key    LATE    a worker may stop between its last look at the clock and its send
     REPLAY   the command comes again after it was finished, perhaps with other content under its key
     AMBIG    the answer to a COMMIT may be lost, once: the same transaction is run again
     AMNESIA  the database may lose commits (restore, promoted standby). 1: a claim, and the command is delivered again; 2: the last permit
     SPLIT    a pick of the sweep may come between the read and the write of a step
     RECS     reconcilers at once                ROUNDS  looks they take         SENDS    the most permits
   The rules, all on: see the switches below; each one left out breaks a guarantee in some world (model/checks.txt). */
#ifndef IDEMP
#define IDEMP 1
#endif
#ifndef PINNED
#define PINNED 0
#endif
#ifndef QUERY
#define QUERY 1
#endif
#ifndef LAG
#define LAG 0
#endif
#ifndef PROOF
#define PROOF 1
#endif
#ifndef FORGET
#define FORGET 0
#endif
#ifndef LATE
#define LATE 0
#endif
#ifndef REPLAY
#define REPLAY 0
#endif
#ifndef AMBIG
#define AMBIG 0
#endif
#ifndef AMNESIA
#define AMNESIA 0
#endif
#ifndef SPLIT
#define SPLIT 0
#endif
#ifndef RECS
#define RECS 1
#endif
#ifndef ROUNDS
#define ROUNDS 3
#endif
#ifndef SENDS
#define SENDS 2
#endif

/* The rules. */
#ifndef HOLDS      /* without evidence only the holder of the lease decides (G11): internal/settle/rules.go holds */
#define HOLDS 1
#endif
#ifndef CLAIMLEASE /* a claim that is run again sends only what still has its lease: internal/store/claim_sql.go claimGround */
#define CLAIMLEASE 1
#endif
#ifndef REJECTLEASE /* and it rejects only that: internal/store/claim_sql.go rejectClaimed */
#define REJECTLEASE 1
#endif
#ifndef START      /* a send does not begin after its time: internal/settle/gate.go enter */
#define START 1
#endif
#ifndef REPEATS    /* a repeat is answered, not sent (G2): internal/store/judge.go judgeRepeat */
#define REPEATS 1
#endif
#ifndef CONTENT    /* other content under the key is a conflict (G8): internal/store/judge.go judgeRepeat */
#define CONTENT 1
#endif
#ifndef REMEMBER   /* a rejection is stored under its key (G2): internal/store/judge.go rejectClaimed */
#define REMEMBER 1
#endif
#ifndef TOGETHER   /* effect and outbox rows in one transaction (G7): internal/store/apply_sql.go queue */
#define TOGETHER 1
#endif
#ifndef CLAIMFIRST /* the record is finished after the claim's commit (G5): consumer/lane.go claim */
#define CLAIMFIRST 1
#endif
#ifndef ONCE       /* one permit, one request on the wire: channel/adapter.go Adapter */
#define ONCE 1
#endif
#ifndef TIMEOUT    /* a timeout is unknown; 0: not sent, 2: declined. payment/classify.go Classify */
#define TIMEOUT 1
#endif
#ifndef DECLINE    /* decline rule: channel/rules.go ConcludesDecline */
#define DECLINE 1
#endif
#ifndef WAIT       /* the concluding query starts after every send is dead and the lookup has caught up: channel/rules.go DeclineQueryAfter */
#define WAIT 1
#endif
#ifndef NOMORE     /* no permit after a decline that is not concluded: internal/settle/checks.go forbidden */
#define NOMORE 1
#endif
#ifndef MEMORY     /* memory rule: channel/rules.go PermitsSend */
#define MEMORY 1
#endif
#ifndef SENTONCE   /* without idempotent submit an attempt is sent once: channel/rules.go PermitsSend */
#define SENTONCE 1
#endif
#ifndef STICKY     /* a terminal state never changes (G9): internal/settle/rules.go succeeded, internal/settle/rules.go declined */
#define STICKY 1
#endif
#ifndef TABLE      /* the store refuses what the table of states does not have (G9): payment/state.go CanBecome, internal/store/apply.go errImpossible;
                      2: but lets a declined payment become unknown again: payment/state.go transitions */
#define TABLE 1
#endif
#ifndef GIVEUP     /* no answer is no outcome (G3): internal/settle/rules.go review */
#define GIVEUP 1
#endif
#ifndef FIRST      /* after lost commits the provider is asked before the first send: internal/settle/suspect.go firstNotFound */
#define FIRST 1
#endif
#ifndef LOWER      /* of Kafka's offset and the stored one the lower wins: consumer/consumer.go startOffset */
#define LOWER 1
#endif
#ifndef ASK        /* and before a first send of what was parked: internal/settle/suspect.go unasked */
#define ASK 1
#endif
#ifndef FORGOTTEN  /* and sends of a lost claim count: internal/settle/suspect.go sends */
#define FORGOTTEN 1
#endif
#ifndef DOUBT      /* while commits may be lost, "the only send" is not believed, and its decline is concluded by a query: internal/settle/suspect.go sends */
#define DOUBT 1
#endif
#ifndef DEADLINE   /* and that query waits for a send whose deadline was lost as well: internal/settle/suspect.go doubted */
#define DEADLINE 1
#endif
#ifndef RANOUT     /* only what nobody works on is picked: internal/store/due.go PickDue */
#define RANOUT 1
#endif
#ifndef TRACE      /* a refusal leaves a trace in the lookup; 0: a validation error need not */
#define TRACE 0
#endif

#define UNRESOLVED (state == PENDING || state == UNKNOWN || state == REVIEW)
#define TERMINAL (state == SUCC || state == DECL || state == REJ)
#define FORBIDDEN (TABLE && !UNRESOLVED)                /* payment/state.go transitions: of a terminal state, none; the step fails and changes nothing */
#define MAYRUN(s) (st[s] == CHECKED || st[s] == OUT || (st[s] == PERMIT && inTime[s]))
#if SENDS > 2
#define ALIVE (MAYRUN(0) || MAYRUN(1) || MAYRUN(2))
#else
#define ALIVE (MAYRUN(0) || MAYRUN(1))
#endif
#define LOSTSENDS (FORGOTTEN && (first || lost))        /* internal/settle/suspect.go mayBeForgotten */
#define UNASKED (ASK && suspect && count == 0 && !asked)
#define RECORD (permits + (raised -> 8 : 0))            /* what the stored last deadline is made of */
#define DOUBTED (DOUBT && suspect && count > 0)
#define COUNT (count + (DOUBTED -> 1 : 0) + (LOSTSENDS -> 2 : 0))   /* internal/settle/suspect.go sends */
#if SENDS > 2
#define DEADYET ((!MAYRUN(0) || missed == 0) && (!MAYRUN(1) || missed == 1) && (!MAYRUN(2) || missed == 2))
#else
#define DEADYET ((!MAYRUN(0) || missed == 0) && (!MAYRUN(1) || missed == 1))   /* as far as the stored deadline tells */
#endif

/* The guarantees, as names that a failed assertion shows. */
hidden byte G1_one_charge = 1;
hidden byte G2_first_answer = 1;
hidden byte G3_no_guess = 1;
hidden byte G4_no_send_after_decline = 1;
hidden byte G8_conflict = 1;
hidden byte G9_sticky = 1;
hidden byte G5_every_command_ends = 1;

mtype = { NONE, PENDING, UNKNOWN, SUCC, DECL, REJ, REVIEW, YES, NO, NOTHING, NOTSENT, NOTFOUND, PERMIT, CHECKED, OUT, DEAD };

/* The database: settleonce.payments, settleonce.open_payments, settleonce.outbox (internal/store/rows.go Payment, internal/store/rows.go Open) */
mtype state = NONE;
bool content;               /* fingerprint */
byte lease = 0;             /* 0: released */
byte count = 0;             /* permits that may have been sent */
bool nomore = false, first = false, lost = false, asked = false;
mtype told = NONE;          /* the outcome or rejection that is in the outbox */
bool locked = false;        /* the payment's row lock: internal/store/apply.go lockPayments */
bool suspect = false;       /* consumer/consumer.go checkInstallation */
byte missed = SENDS;        /* the send whose permit, and so whose deadline, the database lost */
bool stored = false;        /* the offset behind the command, in the database: internal/store/offsets.go queueOffsets */
bool raised = false;        /* that deadline was stored anew, as late as it may be */
bool unclear = false;       /* the answer to a COMMIT was lost */
/* Kafka */
bool finished = false;      /* the command's offset may be committed */
bool again = false;         /* its second delivery has begun */
/* the sends */
byte permits = 0;
mtype st[SENDS] = NONE, ans[SENDS] = NONE;
bool inTime[SENDS];         /* its start and deadline are not over */
/* the provider */
byte charges = 0;
mtype rec = NONE, truth = NONE, seen = NONE;  /* what is under the key, in its books, in its lookup */
bool remembers = true, repeated = false;
/* the reconcilers */
byte rounds = 0;

inline charge() {
  charges++; rec = YES; truth = YES;
  assert(G1_one_charge == 0 || charges <= 1);
  assert(G2_first_answer == 0 || told != REJ);
  assert(G3_no_guess == 0 || state != DECL)
}

inline execute(s) {
  if
  :: st[s] = DEAD                                                       /* lost on the way, or the connection was reset in time */
  :: true ->
     if
     :: !ONCE && !repeated -> repeated = true                           /* the transport sends it again by itself (P28) */
     :: else -> st[s] = DEAD
     fi;
     if
     :: IDEMP && rec == YES -> r = YES
     :: IDEMP && rec == NO && PINNED -> r = NO
     :: else ->
        if
        :: r = YES; charge()
        :: r = NO; if :: rec != YES -> rec = NO :: else fi; if :: truth != YES -> truth = NO :: else fi
        :: !TRACE && !PINNED -> r = NO                                  /* refused: validated anew each time, no trace of it */
        fi
     fi;
#if !LAG
     seen = truth;
#endif
     if :: ans[s] = r :: skip fi                                        /* the answer may be lost */
  fi; r = NONE
}

proctype provider() {
  mtype r;
  do
  :: atomic { st[0] == OUT -> execute(0) }
  :: atomic { st[1] == OUT -> execute(1) }
#if SENDS > 2
  :: atomic { st[2] == OUT -> execute(2) }
#endif
#if FORGET
  :: atomic { remembers && permits > 0 && (!MEMORY || !ALIVE) -> remembers = false; rec = NONE }
#endif
  od
}

#if LAG
active proctype lookup() { do :: atomic { seen != truth -> seen = truth } od }
#endif

/* What is about to change has no end yet, or the store refuses the change. */
inline changes() { assert(G9_sticky == 0 || FORBIDDEN || UNRESOLVED) }

/* A terminal state with its reply and event (internal/store/apply.go add, internal/store/apply.go publish). */
inline ends(x) {
  changes();
  if
  :: FORBIDDEN || (TABLE && x == REJ && state != PENDING)
  :: else ->
     assert(G3_no_guess == 0 || x != DECL || charges == 0);
     assert(G3_no_guess == 0 || x != SUCC || charges > 0);
     assert(G2_first_answer == 0 || x != REJ || charges == 0);
     state = x; lease = 0; count = 0; nomore = false; first = false; lost = false; asked = false;   /* internal/store/apply_sql.go queueEnded */
#if TOGETHER
     told = x
#endif
  fi
}

/* internal/settle/rules.go succeeded; contradicting evidence opens a conflict item and changes nothing (internal/settle/rules.go conflict) */
inline succeeded() {
  if
  :: UNRESOLVED || (!STICKY && state != SUCC && state != NONE) -> ends(SUCC)
  :: else
  fi
}

/* internal/settle/rules.go declined, internal/settle/rules.go holdDecline */
inline declined(byQuery) {
  if
  :: UNRESOLVED || (!STICKY && state == SUCC) ->
     if
     :: !DECLINE || (byQuery && !(DEADLINE && DOUBTED && !nomore)) || COUNT == 1 || (COUNT > 1 && IDEMP && PINNED && (!MEMORY || remembers)) -> ends(DECL)
     :: else ->
        changes();
        if :: DOUBTED && !nomore -> missed = SENDS; raised = true :: else fi;
        nomore = true; lease = 0;
        if
        :: FORBIDDEN
        :: !FORBIDDEN && (!QUERY || (count == 0 && !LOSTSENDS)) -> state = REVIEW
        :: !FORBIDDEN && state == PENDING && QUERY && (count > 0 || LOSTSENDS) -> state = UNKNOWN
        :: else
        fi
     fi
  :: else
  fi
}

/* internal/settle/rules.go unanswered, internal/settle/rules.go canAsk */
inline unanswered() {
  changes();
  lease = 0;
  if
  :: FORBIDDEN && TABLE == 2 && state == DECL && QUERY && rounds < ROUNDS ->
     assert(G4_no_send_after_decline == 0);
     state = UNKNOWN
  :: (FORBIDDEN && !(TABLE == 2 && state == DECL && QUERY && rounds < ROUNDS)) || state == REVIEW                                                    /* internal/settle/rules.go watch */
  :: !FORBIDDEN && state != REVIEW && (rounds >= ROUNDS || !(QUERY || (IDEMP && !nomore))) ->
     if :: GIVEUP -> state = REVIEW :: else -> ends(DECL) fi            /* after the third query, or no way to ask */
  :: !FORBIDDEN && state != REVIEW && rounds < ROUNDS && (QUERY || (IDEMP && !nomore)) -> state = UNKNOWN
  fi
}

/* internal/settle/rules.go notSent: the permit was not a send */
inline notSent() {
  lease = 0;
  if :: count > 0 -> count-- :: else fi
}

/* internal/settle/rules.go submitAnswer. h: internal/settle/rules.go holds */
inline submitAnswer() {
  if
  :: a == YES -> succeeded()
  :: a == NO -> declined(false)
  :: (a == NOTSENT || a == NOTHING) && h && (UNRESOLVED || !STICKY) ->
     if
     :: a == NOTSENT || TIMEOUT == 0 -> notSent()
     :: a == NOTHING && TIMEOUT == 2 -> declined(false)
     :: a == NOTHING && TIMEOUT == 1 -> unanswered()
     fi
  :: else
  fi
}

/* internal/store/apply.go applyRound: lock the payment, read, decide, write. A pick does not take the payment's lock: it may come in between. */
#if SPLIT
#define LOCK atomic { !locked -> locked = true; h = (!HOLDS || lease == my) }; atomic { skip;
#else
#define LOCK atomic { h = (!HOLDS || lease == my);
#endif
#define UNLOCK locked = false; h = false }
/* With effect and outbox row apart, the worker may die in between. */
#if TOGETHER
#define PUBLISH skip
#else
#define PUBLISH if :: TERMINAL && told == NONE -> told = state :: skip fi
#endif

/* internal/settle/settler.go Submit, internal/settle/settler.go send: one permit on its way */
proctype sender(byte s, my) {
  mtype a = NONE; bool h;
  if
  :: atomic { st[s] = DEAD; inTime[s] = false; goto out }                                  /* its process dies: crashpoint.SendStart */
  :: atomic { a = NOTSENT; st[s] = DEAD; inTime[s] = false; goto store }   /* no byte left */
  :: atomic { START && !inTime[s] -> a = NOTSENT; st[s] = DEAD; goto store }   /* too late to start: internal/settle/gate.go enter */
#if LATE
  :: atomic { (!START || inTime[s]) -> st[s] = CHECKED; inTime[s] = false };
     st[s] = OUT
#else
  :: atomic { (!START || inTime[s]) -> st[s] = OUT; inTime[s] = false }
#endif
  fi;
  if
  :: atomic { ans[s] != NONE -> a = ans[s]; ans[s] = NONE }
  :: a = NOTHING                                                        /* timeout, reset, 5xx */
  :: goto out                                                           /* its process dies: crashpoint.SendDone */
  fi;
store:                                                                  /* internal/settle/settler.go commit */
  do
  :: LOCK submitAnswer(); UNLOCK;
     PUBLISH;
     if :: atomic { AMBIG && !unclear -> unclear = true } :: break fi
  od;
out: atomic { a = NONE; s = 0; my = 0 }
}

/* internal/settle/checks.go permit, internal/settle/checks.go forbidden, internal/settle/checks.go resume */
inline permit() {
  if
  :: state == REVIEW -> lease = 0                                       /* nothing automatic sends behind a person's back */
  :: state != REVIEW && UNASKED -> first = true; lease = 0; missed = SENDS; raised = true   /* internal/settle/suspect.go askFirst */
  :: state != REVIEW && !UNASKED && COUNT == 0 && state == PENDING -> ends(REJ)     /* stale by now, obligation paid, parked too long */
  :: state != REVIEW && !UNASKED && !tired ->
     if
     :: nomore && NOMORE -> state = REVIEW; lease = 0
     :: else ->
        if
        :: lease = 0                                                    /* the channel does not admit it now */
        :: COUNT > 0 && ((SENTONCE && !IDEMP) || (MEMORY && !remembers)) -> state = REVIEW; lease = 0
        :: permits < SENDS && (COUNT == 0 || ((!SENTONCE || IDEMP) && (!MEMORY || remembers))) ->
           if :: COUNT == 0 && !suspect -> remembers = true :: else fi; /* its memory begins with the first send */
           assert(G4_no_send_after_decline == 0 || !nomore);
           count++; lease = my;                                         /* a permit: at most one request, before its deadline */
           st[permits] = PERMIT; inTime[permits] = true; permits++;
           run sender(permits - 1, my)                                  /* reconciler/check.go sendIfGranted */
        fi
     fi
  :: tired && !UNASKED && !(COUNT == 0 && state == PENDING) && state != REVIEW -> state = REVIEW; lease = 0
  fi
}

/* internal/settle/checks.go queryAnswer */
inline queryAnswer() {
  if
  :: a == YES -> succeeded()
  :: a == NO -> declined((fresh && n == RECORD && count + (LOSTSENDS -> 1 : 0) > 0))
  :: a != YES && a != NO && h && (UNRESOLVED || (!STICKY && a == NOTHING)) ->
     if
     :: a == NOTSENT -> lease = 0                                       /* not one of the three: internal/settle/checks.go PutOff */
     :: a == NOTHING -> unanswered()   /* internal/settle/checks.go counted */
     :: a == NOTFOUND && first ->                                       /* internal/settle/suspect.go firstNotFound */
        lease = 0;
        if
        :: !(PROOF || IDEMP) -> state = REVIEW
        :: (PROOF || IDEMP) && fresh && n == RECORD -> first = false; asked = true; lost = !PROOF
        :: (PROOF || IDEMP) && !(fresh && n == RECORD)
        fi
     :: a == NOTFOUND && !first ->                                      /* internal/settle/checks.go notFound, channel/rules.go NotFound */
        if
        :: unanswered()                       /* too early, or it means nothing */
        :: nomore && NOMORE -> lease = 0; state = REVIEW
        :: IDEMP && (!nomore || !NOMORE) && (!MEMORY || remembers) -> permit()
        :: !SENTONCE && !IDEMP && state != REVIEW -> permit()
        :: fresh && PROOF -> lease = 0; state = REVIEW                  /* proven absent: a new send is an operator's decision */
        fi
     fi
  :: else
  fi
}

/* reconciler/check.go check, internal/settle/checks.go Next */
proctype reconciler(byte me) {
  byte my = 0, n = 0; mtype a = NONE; bool fresh = false, tired = false, h;
  do
  :: atomic { UNRESOLVED && (rounds < ROUNDS || (me == 0 && state != REVIEW)) ->             /* internal/store/due.go PickDue, internal/store/due.go PickWoken */
       if
       :: rounds < ROUNDS -> rounds++; my = 2 + rounds
       :: else -> tired = true; my = 3 + ROUNDS + 1                     /* everything takes too long: internal/settle/rules.go Rules */
       fi;
       if :: !RANOUT :: lease != 0 -> inTime[0] = false; inTime[1] = false   /* it ran out, and with it the time of its sends */
#if SENDS > 2
          ; inTime[2] = false
#endif
       :: else fi;
       lease = my };
     atomic {                                                           /* internal/store/due.go Read */
       fresh = (!WAIT || (DEADYET && seen == truth)); n = RECORD; a = NONE;
       if
       :: state == PENDING && !first && count == 0 -> a = PERMIT        /* ActionPermit */
       :: UNRESOLVED && (state != PENDING || first) && QUERY && !tired -> a = OUT   /* ActionQuery */
       :: state == UNKNOWN && !QUERY && IDEMP && !nomore && !tired -> a = PERMIT
       :: UNRESOLVED && !(state == PENDING && !first) -> a = DEAD       /* ActionReview: no way to ask, or no answer for too long: internal/settle/rules.go WithDefaults */
       :: state == PENDING && !first && count > 0 -> a = NOTHING        /* ActionOrphan: internal/settle/checks.go Orphaned */
       :: !UNRESOLVED
       fi };
     if
     :: a == PERMIT ->                                                  /* internal/settle/checks.go Permitted */
        do
        :: LOCK if :: h && UNRESOLVED -> permit() :: else fi; UNLOCK;
           PUBLISH;
           if :: atomic { AMBIG && !unclear -> unclear = true } :: break fi
        od
     :: a == OUT ->                                                     /* internal/settle/settler.go Query, internal/settle/checks.go Queried */
        if
        :: atomic { seen != NONE -> a = seen }
        :: atomic { seen == NONE || !PROOF -> a = NOTFOUND }
        :: a = NOTHING
        :: a = NOTSENT
        fi;
        do
        :: LOCK queryAnswer(); UNLOCK;
           PUBLISH;
           if :: atomic { AMBIG && !unclear -> unclear = true } :: break fi
        od
     :: a == NOTHING -> LOCK if :: h && UNRESOLVED -> unanswered() :: else fi; UNLOCK
     :: a == DEAD -> LOCK if :: h && UNRESOLVED -> lease = 0; if :: GIVEUP -> state = REVIEW :: else -> ends(DECL) fi :: else fi; UNLOCK
     :: a == NONE
     fi;
     atomic { a = NONE; fresh = false; n = 0; my = 0; tired = false }
  od
}

/* What a delivery of a known key is told: internal/store/judge.go judgeRepeat, under the lock of internal/store/claim_sql.go claimKnown */
inline repeat() {
  if
  :: CONTENT && mine != content                                         /* IDEMPOTENCY_CONFLICT */
  :: else ->
     assert(G8_conflict == 0 || mine == content);
     if :: TERMINAL && TOGETHER -> assert(G2_first_answer == 0 || told == state) :: else fi;
     if
     :: !REPEATS && UNRESOLVED && permits < SENDS ->                    /* the textbook: an unfinished one is simply done again */
        st[permits] = PERMIT; inTime[permits] = true; permits++; lease = my; run sender(permits - 1, my)
     :: else
     fi
  fi
}

/* consumer/lane.go claim: a delivery of the command. Its process may die at any step; the second one is a redelivery or a replay. */
proctype consumer(byte d) {
  byte my = d + 1, s = SENDS; bool mine, won = false, tried = false, h = false;
  if
  :: d == 0
  :: atomic { d == 1 && (REPLAY || !finished || (LOWER && suspect && !stored)) -> again = true; if :: REPLAY -> mine = true :: true fi }
  fi;
#if !CLAIMFIRST
  finished = true;
#endif
  if :: d == 0 -> goto out :: true fi;                                  /* dies: crashpoint.ClaimStart */
claim:                                                                  /* internal/store/claim.go claimRun, internal/store/claim.go Claim */
  if
  :: atomic { state == NONE && !(tried && REMEMBER) ->                  /* internal/store/claim_sql.go claimInsert */
       content = mine; stored = true;
       if
       :: !suspect ->                                                   /* internal/store/judge.go reject: refused now, and remembered */
          told = REJ;
#if REMEMBER
          state = REJ
#endif
       :: state = PENDING; lease = my; won = true; first = (suspect && FIRST); nomore = false; count = 0; lost = false; asked = false;
          if
          :: !first && permits < SENDS -> s = permits; count = 1;       /* internal/store/claim.go fresh */
             if :: !suspect -> remembers = true :: else fi;
             st[s] = PERMIT; inTime[s] = true; permits++
          :: skip                                                       /* parked: consumer/judge.go admit */
          fi
       fi }
  :: atomic { tried && won && UNRESOLVED && (!CLAIMLEASE || lease == my) ->   /* run again: still this batch's. internal/store/claim_sql.go claimGround */
       h = true;
       if :: s == SENDS && count > 0 && permits < SENDS -> s = permits; st[s] = PERMIT; inTime[s] = true; permits++   /* somebody else's permit! */
          :: else
       fi }
  :: atomic { !locked && state != NONE && !(tried && won && UNRESOLVED && (!CLAIMLEASE || lease == my)) -> repeat(); won = false }
  fi;
  if
  :: atomic { AMBIG && !unclear -> unclear = true; tried = true; goto claim }                        /* consumer/lane.go claimUntilDone: the same batch, the same lease */
  :: true
  fi;
  if
  :: h ->                                                               /* judged again, against what stands there now */
     if
     :: atomic { !locked ->                                             /* internal/store/judge.go rejectClaimed */
          if
          :: !REJECTLEASE || lease == my ->
             lease = 0; count = 0;
             if :: state == PENDING -> won = false; if :: s < SENDS && st[s] == PERMIT -> st[s] = DEAD :: else fi; ends(REJ)
                :: else -> state = NONE                                 /* its open row is gone: nobody looks at it any more */
             fi
          :: else -> h = false                                          /* the transaction fails, and is run again */
          fi }
     :: true
     fi
  :: else
  fi;
  if :: d == 0 && s < SENDS && won -> atomic { if :: st[s] == PERMIT -> st[s] = DEAD :: else fi; goto out } :: true fi;   /* dies: crashpoint.ClaimCommitted */
  finished = true;                                                      /* internal/kafka/delivery.go Finish */
  if
  :: atomic { won && s < SENDS && st[s] == PERMIT -> run sender(s, my) }   /* consumer/lane.go send */
  :: else
  fi;
out: atomic { my = 0; s = 0; mine = false; won = false; tried = false; h = false }
}

#if AMNESIA
/* Commits are lost; workers that were under way do not know. internal/store/offsets.go CheckInstallation, internal/store/offsets.go mayHaveLostCommits notice. */
active proctype amnesia() {
#if AMNESIA == 1
  atomic { UNRESOLVED && !again && !locked ->
    state = NONE; lease = 0; count = 0; nomore = false; first = false; lost = false; asked = false; suspect = true; stored = false }
#else
  atomic { UNRESOLVED && count > 0 && !locked && !nomore -> count--; lease = 0; suspect = true; missed = permits - 1 }
#endif
}
#endif

init {
  atomic {
    run provider(); run consumer(0); run consumer(1); run reconciler(0);
#if RECS > 1
    run reconciler(1)
#endif
  };
  timeout;                                                              /* nothing can move any more */
  assert(G5_every_command_ends == 0 || state == REVIEW || (TERMINAL && told == state))
}

/* G15 for one obligation and KEYS keys, each in a partition of its own, consumed in any order and delivered up to twice. A claim is
   two statements of one READ COMMITTED transaction: the first wins the key and tries for the hold, a later one reads what stands on
   the obligation. Others commit in between. The client issues key 0 first and the others later: for the same intent, since it knows of
   no outcome, or, having been told of a success, for a second payment that names it (follows).

   The world:  KEYS  2 or 3     HEARD  the client hears of a success at once     RETAIN  old rows are removed, and the command is delivered once more
              PARK  a claimed one may wait for its channel: with RETAIN, until it is too old
              LATE  the provider may break its word once: what it declined it executed all the same, which opens a conflict
              SKEW  a client's clock may be ahead by less than the tolerance: with CLOCK
   The rules:  see the switches; each one left out breaks G2 or G15 (model/checks.txt). */
#ifndef KEYS
#define KEYS 2
#endif
#ifndef HEARD
#define HEARD 0
#endif
#ifndef RETAIN
#define RETAIN 0
#endif
#ifndef PARK
#define PARK 0
#endif
#ifndef LATE
#define LATE 0
#endif
#ifndef SKEW
#define SKEW 0
#endif
#ifndef STICKY      /* a rejection is stored under its key and answered again (G2): internal/store/judge.go rejectClaimed */
#define STICKY 1
#endif
#ifndef FOLLOWS     /* "repay: named": once there is a success, only a command that names the latest one: payment/obligation.go Verdict */
#define FOLLOWS 1
#endif
#ifndef CLOCK       /* instead, the default: a command issued after the success is taken to know of it: payment/obligation.go SuccessTolerance */
#define CLOCK 0
#endif
#ifndef HOLD        /* whoever finds another's hold is refused: payment/obligation.go Verdict */
#define HOLD 1
#endif
#ifndef LATER       /* what stands on the obligation is read by a later statement than the one that tries for the hold: internal/store/claim_sql.go claimGround */
#define LATER 1
#endif
#ifndef OWNHOLD     /* who neither has the hold nor finds another's starts again: internal/store/judge.go errHoldFreed */
#define OWNHOLD 1
#endif
#ifndef TOGETHER    /* success and release commit together: internal/store/apply_sql.go queueEnded */
#define TOGETHER 1
#endif
#ifndef GIVEBACK    /* the loser gives back only its own hold: internal/store/claim_sql.go rejectClaimed */
#define GIVEBACK 1
#endif
#ifndef KEEP        /* a key is kept until every copy of its command is stale: internal/store/retention.go RemoveExpired, payment/obligation.go KeepUntil */
#define KEEP 1
#endif
#ifndef STALE       /* a key that is not known is judged by its age (G14): payment/obligation.go Judge */
#define STALE 1
#endif
#ifndef AGED        /* and judged again when it may be sent at last (G14): internal/settle/checks.go forbidden */
#define AGED 1
#endif

#ifndef GROUND      /* and the obligation as well (G15): internal/settle/checks.go forbidden */
#define GROUND 1
#endif
#ifndef TOLERANCE   /* only a command issued later by the tolerance counts as made after the success: payment/obligation.go SuccessTolerance */
#define TOLERANCE 1
#endif

#define NOBODY KEYS
hidden byte G2_first_answer = 1;
hidden byte G15_prior_attempt_first = 1;
hidden byte G15_no_charge_in_ignorance = 1;
hidden byte G1_one_charge = 1;
hidden byte G14_stale_is_not_charged = 1;

byte hold = NOBODY;           /* settleonce.obligation_holds */
byte holdOf = NOBODY;         /* whose claim, not committed yet, has inserted it: others wait for it */
byte success = NOBODY;        /* the latest success */
byte open = 0;                /* payments of this obligation that may be charged now */
bool row[KEYS], rejected[KEYS], issued[KEYS], charged[KEYS], answered[KEYS], old[KEYS];
byte wins = 0, after[KEYS];   /* successes so far, and when the command was issued */
byte follows[KEYS];           /* which success the command names */
byte told = NOBODY;           /* which success the client knows of */
bool conflict = false;        /* settleonce.review_items: success evidence against an outcome */
bool ended[KEYS];             /* declined */
bool ahead[KEYS];             /* its client's clock shows a time that had not come when it was issued, by less than the tolerance */

proctype client() {
  byte k = 1;
  atomic { follows[0] = NOBODY; issued[0] = true };
  do
  :: k < KEYS ->
     atomic {
       issued[k] = true; after[k] = wins; follows[k] = (HEARD -> success : told);
       if :: SKEW -> ahead[k] = true :: true fi };
     k++
  :: else -> break
  od
}

#if !HEARD
/* payment.replies, read by the client at some time or never */
proctype reply() { if :: atomic { success != NOBODY -> told = success } :: true fi }
#endif

/* The default rule (payment/obligation.go Verdict): a command is taken to know of the success when it was issued after it, by the clock of its
   caller. One whose clock is ahead may have been issued shortly before. */
#define MADEAFTER (after[k] == wins || (!TOLERANCE && ahead[k] && after[k] + 1 == wins))

#if LATE
/* internal/settle/rules.go conflict */
active proctype evidence() { if :: atomic { ended[0] -> conflict = true } :: true fi }
#endif

/* internal/store/claim.go claimRun */
proctype partition(byte k) {
  byte deliveries = 0, holder, latest; bool mine;
  issued[k];
  do
  :: deliveries < 2 ->
     deliveries++;
begin:
     mine = false;
#if !LATER
     latest = success;                                                 /* the snapshot of the one statement, before it waits for the hold */
#endif
     if
     :: atomic { row[k] || (STICKY && rejected[k]) ->                  /* a repeat gets the first answer: internal/store/judge.go judgeRepeat */
          skip }
     :: atomic { !row[k] && !(STICKY && rejected[k]) && old[k] && STALE -> rejected[k] = true; answered[k] = true }  /* internal/store/judge.go rejectTime */
     :: atomic { !row[k] && !(STICKY && rejected[k]) && !(old[k] && STALE) && (hold == NOBODY || holdOf == NOBODY) ->
          /* internal/store/claim_sql.go claimInsert: ON CONFLICT DO NOTHING; it waits while another claim's row is not committed */
          if :: hold == NOBODY -> hold = k; holdOf = k :: else fi;
          mine = true }
     fi;
     if
     :: mine ->
        atomic {                                                        /* internal/store/claim_sql.go claimGround, internal/store/judge.go judgeFresh; commit */
          holder = hold;
#if LATER
          latest = success;
#endif
          if
          :: LATE && conflict -> rejected[k] = true; answered[k] = true; mine = false        /* PRIOR_ATTEMPT_UNRESOLVED: internal/store/claim_sql.go blockingReview */
          :: !(LATE && conflict) && OWNHOLD && holder != k && holder == NOBODY -> mine = false; goto begin        /* gone in between: the transaction is run again */
          :: !(LATE && conflict) && HOLD && holder != k && holder != NOBODY -> rejected[k] = true; answered[k] = true; mine = false   /* PRIOR_ATTEMPT_UNRESOLVED */
          :: !(LATE && conflict) && (!HOLD || holder == k || (holder == NOBODY && !OWNHOLD)) && FOLLOWS && latest != NOBODY && !(CLOCK -> MADEAFTER : follows[k] == latest) ->
             rejected[k] = true; answered[k] = true; mine = false                          /* OBLIGATION_ALREADY_PAID */
          :: else -> row[k] = true; open++
          fi;
          if
          :: !mine ->
             if
             :: hold == k || (!GIVEBACK && hold != NOBODY) -> hold = NOBODY    /* the loser gives it back in the same transaction */
             :: else
             fi
          :: else
          fi;
          if :: holdOf == k -> holdOf = NOBODY :: else fi };
#if PARK
        if
        :: mine ->
           atomic {                                                     /* at the permit: internal/settle/checks.go Permitted */
             if
             :: (old[k] && AGED) || (conflict && GROUND) -> rejected[k] = true; answered[k] = true; mine = false; open--; if :: hold == k -> hold = NOBODY :: else fi
             :: else ->
                assert(G14_stale_is_not_charged == 0 || !old[k]);
                assert(G15_prior_attempt_first == 0 || !conflict)
             fi }
        :: else
        fi;
#endif
        if
        :: mine ->
           atomic {                                                     /* it is sent: internal/settle/settler.go Submit */
             assert(G2_first_answer == 0 || !answered[k]);
             assert(G15_prior_attempt_first == 0 || open <= 1) };
           if
           :: atomic {                                                  /* succeeded: internal/settle/rules.go succeeded, internal/store/apply_sql.go queueUpdates */
                assert(G1_one_charge == 0 || !charged[k]);
                assert(G15_no_charge_in_ignorance == 0 || success == NOBODY || follows[k] == success);
                charged[k] = true; answered[k] = true; open--;
#if TOGETHER
                success = k; wins++;
                if :: hold == k -> hold = NOBODY :: else fi };
#else
                if :: hold == k -> hold = NOBODY :: else fi };
              success = k; wins++
#endif
           :: atomic { answered[k] = true; ended[k] = true; open--; if :: hold == k -> hold = NOBODY :: else fi }   /* declined */
           fi
        :: else
        fi
     :: else
     fi
  :: else -> break
  od
}

#if RETAIN
/* Time passes: the command of key 0 becomes too old to be judged, then its row is removed. Not kept long enough: the other way round. */
proctype retention() {
#if KEEP
  old[0] = true;
#endif
  atomic { (row[0] || rejected[0]) && answered[0] && hold != 0 -> row[0] = false; rejected[0] = false; if :: success == 0 -> success = NOBODY :: else fi };
  old[0] = true
}
#endif

init {
  atomic {
    follows[0] = NOBODY; follows[1] = NOBODY;
#if KEYS > 2
    follows[2] = NOBODY;
#endif
    run client();
#if !HEARD
    run reply();
#endif
    run partition(0); run partition(1);
#if KEYS > 2
    run partition(2);
#endif
#if RETAIN
    run retention();
#endif
  }
}

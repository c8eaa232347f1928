/* Transactions that meet at one payment: each reads it and writes what it decided, one statement after the other, at READ COMMITTED. The
   payment was sent once, and nobody knows what came of that. Then come, in any order, what the send was answered (declined, or success), a
   permit for a second send, a note that a query got no answer, and a repeat of the command. What one reads another may have changed before
   it writes; what is not committed nobody sees.

   The world:  PERMITS  a second send may be permitted (that changes neither the payment's state nor its version)
   The rules:  see the switches; what breaks without them is in model/checks.txt. */
#ifndef PERMITS
#define PERMITS 1
#endif
#ifndef LOCKS       /* who decides about a payment has its row locked from before it reads: internal/store/apply.go lockPayments */
#define LOCKS 1
#endif
#ifndef COMPARES    /* the row is written only as it was read, state and version: internal/store/apply_sql.go updatePayments */
#define COMPARES 1
#endif
#ifndef REPEATLOCK  /* a repeat is answered under the row's lock: internal/store/claim_sql.go claimKnown */
#define REPEATLOCK 1
#endif

hidden byte G3_no_guess = 1;
hidden byte G4_no_send_after_decline = 1;
hidden byte G9_sticky = 1;
hidden byte G10_order_in_the_outbox = 1;

#define NOBODY 0
mtype = { UNKNOWN, REVIEW, SUCC, DECL, ANSWER, PERMIT, NOTE };
#define ENDED(s) (s == SUCC || s == DECL)

mtype state = UNKNOWN; byte version = 1;     /* settleonce.payments */
byte sends = 1; bool nomore = false;         /* settleonce.open_payments */
byte locked = NOBODY;                        /* the lock of the payment's row */
byte newest = 1; bool told = false;          /* settleonce.outbox, in the order of its sequence: the latest version; the outcome is among them */
mtype first = UNKNOWN;                       /* what the provider made of the first send */
bool second = false, charged = false;        /* a second send is permitted; something was charged */

/* internal/store/apply.go applyRound, with one step */
proctype step(byte me; mtype kind) {
  mtype was, to; byte v, n; bool no, writes;
  if
  :: LOCKS -> atomic { locked == NOBODY -> locked = me }                 /* internal/store/apply.go lockPayments */
  :: !LOCKS -> (locked == NOBODY || locked != NOBODY)                    /* a plain SELECT waits for nobody */
  fi;
  atomic { was = state; v = version; n = sends; no = nomore; to = was; writes = false };   /* internal/store/apply.go readLocked */
  atomic {                                                               /* what the rules make of what was read */
    if
    :: kind == ANSWER && !ENDED(was) && first == SUCC -> to = SUCC; writes = true     /* internal/settle/rules.go succeeded */
    :: kind == ANSWER && !ENDED(was) && first == DECL ->
       writes = true;
       if :: n == 1 -> to = DECL :: else -> no = true fi                 /* internal/settle/rules.go declined, channel/rules.go ConcludesDecline */
    :: kind == PERMIT && !ENDED(was) && !no && n == 1 -> n = 2; writes = true         /* internal/settle/checks.go permit */
    :: kind == NOTE && !ENDED(was) -> to = REVIEW; writes = true         /* internal/settle/rules.go unanswered */
    :: else
    fi };
  if
  :: !writes -> atomic { if :: locked == me -> locked = NOBODY :: else fi; goto out }
  :: writes
  fi;
  atomic {                                                               /* internal/store/apply_sql.go queueUpdates: an UPDATE locks the row, and waits for who has it */
    locked == NOBODY || locked == me -> locked = me;
    if
    :: COMPARES && (state != was || version != v) -> locked = NOBODY; goto out   /* it divides by zero: nothing of it is stored */
    :: else
    fi };
  atomic {                                                               /* internal/store/apply_sql.go queue, and the COMMIT */
    assert(G9_sticky == 0 || !ENDED(state) || to == state);
    assert(G3_no_guess == 0 || to != DECL || !charged);
    assert(G4_no_send_after_decline == 0 || kind != PERMIT || (state != DECL && !nomore));
    if
    :: to != was ->
       assert(G10_order_in_the_outbox == 0 || (v + 1 == newest + 1 && !told));
       version = v + 1; newest = version; told = ENDED(to)
    :: else -> version = v
    fi;
    state = to; sends = n; nomore = no; locked = NOBODY;                 /* internal/store/apply_sql.go updateOpen: as a whole */
    if :: kind == PERMIT -> second = true :: else fi };
out: atomic { was = UNKNOWN; to = UNKNOWN; v = 0; n = 0; no = false; writes = false }
}

/* internal/store/judge.go judgeRepeat */
proctype repeat(byte me) {
  mtype was;
  if
  :: REPEATLOCK -> atomic { locked == NOBODY -> locked = me; was = state }   /* internal/store/claim_sql.go claimKnown */
  :: !REPEATLOCK -> was = state
  fi;
  atomic {
    assert(G10_order_in_the_outbox == 0 || ENDED(was) || !told);         /* "pending" behind the outcome */
    if :: locked == me -> locked = NOBODY :: else fi };
  was = UNKNOWN
}

/* The provider: the second send is executed or not, whatever the first one was answered; declined ones are not pinned (channel/capabilities.go Capabilities) */
proctype provider() {
  if
  :: atomic { second && first != SUCC -> charged = true; assert(G3_no_guess == 0 || state != DECL) }
  :: true
  fi
}

init {
  atomic {
    if :: first = SUCC; charged = true :: first = DECL fi;
    run provider(); run step(1, ANSWER); run step(2, NOTE); run repeat(3);
#if PERMITS
    run step(4, PERMIT)
#endif
  }
}

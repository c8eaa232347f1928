package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/settleonce/settleonce/internal/fleet"
)

// perform has the impostors come, and does to the callers of the table what was
// planned. The player waits for it.
func (r *roster) perform(ctx context.Context, on *run) error {
	if r.play == nil {
		return nil
	}
	defer on.player.hold(-1)
	var all errgroup.Group
	all.Go(func() error { return r.play.pretend(ctx, on.player.clients) })
	if r.table {
		all.Go(func() error { return r.play.change(ctx, on) })
	}
	return all.Wait()
}

// change shuts one caller out, gives another one the namespace of a third, and adds
// one. Whatever is published once the operator's tool is through meets the change: no
// claim goes by an older copy of the table (G12, G15).
func (p *callerPlay) change(ctx context.Context, on *run) error {
	if !fleet.Pause(ctx, p.at) {
		return ctx.Err()
	}
	if err := p.operate(ctx, on, leaver, "revoked_at IS NOT NULL", "revoke", leaver, "--all"); err != nil {
		return err
	}
	out := time.Now()
	p.mu.Lock()
	p.shutOut[leaver] = out
	p.mu.Unlock()
	on.cfg.Say("shut out " + leaver)
	p.publish(on.player, true, p.leavers)
	if err := p.awaitPaid(ctx); err != nil {
		return err
	}
	if err := p.operate(ctx, on, kiosk, "namespace = '"+chain+"'", "set", kiosk, "--namespace", chain); err != nil {
		return err
	}
	on.cfg.Say("moved " + kiosk + " into the namespace of " + chain)
	p.publish(on.player, false, p.secondKeys())
	p.publish(on.player, true, p.arriving[kiosk])
	if err := p.operate(ctx, on, newcomer, "revoked_at IS NULL", "add", newcomer); err != nil {
		return err
	}
	on.cfg.Say("added " + newcomer)
	p.publish(on.player, true, p.arriving[newcomer])
	return p.knock(ctx, on.player.clients, out)
}

// operate uses the operator's tool until it is through, which it may be without our
// hearing of it: the table of callers tells then.
func (p *callerPlay) operate(ctx context.Context, on *run, caller, stands string, args ...string) error {
	const patience, again = 20 * time.Second, 200 * time.Millisecond
	for {
		try, cancel := context.WithTimeout(ctx, patience)
		_, err := on.fleet.Command(try, append([]string{"callers", "--actor", "torture", "--reason", "a drill"}, args...)...)
		cancel()
		if err == nil || p.stands(ctx, on, caller, stands) {
			return nil
		}
		if on.cfg.Disturb == nil {
			return err
		}
		if !fleet.Pause(ctx, again) {
			return errors.Join(ctx.Err(), err)
		}
	}
}

// stands reports whether the table of callers says so already; not while the database
// is away.
func (p *callerPlay) stands(ctx context.Context, on *run, caller, condition string) (done bool) {
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, on.fleet.DSN())
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	err = conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM settleonce.callers WHERE name = $1 AND `+condition+`)`, caller).Scan(&done)
	return err == nil && done
}

// awaitPaid waits, for a while, until some orders of the chain are paid.
func (p *callerPlay) awaitPaid(ctx context.Context) error {
	const few, patience = burst / 3, 30 * time.Second
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if len(p.secondKeys()) >= few {
			break
		}
		if !fleet.Pause(ctx, beat) {
			return ctx.Err()
		}
	}
	return nil
}

// secondKeys are the kiosk's keys for orders that the chain has paid.
func (p *callerPlay) secondKeys() (out []*planned) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for first, second := range p.paid {
		if p.succeeded[first] {
			out = append(out, second)
		}
	}
	return out
}

// publish delivers payments at once; fresh ones are issued only now.
func (p *callerPlay) publish(to *player, fresh bool, some []*planned) {
	p.mu.Lock()
	p.published = append(p.published, some...)
	p.mu.Unlock()
	to.mu.Lock()
	defer to.mu.Unlock()
	for _, of := range some {
		if fresh {
			of.command.IssuedAt = time.Now().UTC().Truncate(time.Millisecond)
		}
		to.insert(delivery{command: &of.command})
	}
}

// join has the player publish what is beside the script too, and wait for what is done
// in the middle.
func (r *roster) join(to *player) {
	if r.play == nil {
		return
	}
	to.keys = r.keys
	to.due = append(slices.Clone(to.due), r.play.deliveries...)
	slices.SortStableFunc(to.due, func(a, b delivery) int { return cmp.Compare(a.at, b.at) })
	to.hold(1)
}

// edgeForgets is how long after a key was revoked the edge may still take it.
const edgeForgets = 5 * time.Second

// knock has the one who was shut out come over HTTP, later than its key may count.
func (p *callerPlay) knock(ctx context.Context, at *clients, out time.Time) error {
	if at == nil {
		return nil
	}
	if !fleet.Pause(ctx, time.Until(out.Add(edgeForgets+time.Second))) {
		return ctx.Err()
	}
	for n, of := range p.leavers[:min(2*len(at.urls), len(p.leavers))] {
		c := of.command
		c.Amount += likeNoOther
		r, err := posing(&c, p.roster.tokens[leaver], "a key that was revoked", n)
		if err != nil {
			return fmt.Errorf("knock at the edge: %w", err)
		}
		at.start(ctx, r, false)
	}
	return nil
}

package torture

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/settleonce/settleonce/internal/clockjump"
	"github.com/settleonce/settleonce/internal/demo"
	"github.com/settleonce/settleonce/internal/devstack"
)

// The effects that are counted beside what was lost.
const (
	leadersMoved = "partitions with another leader"
	shardsTaken  = "shards of a frozen relay that others took over"
	clocksMoved  = "clocks of workers that jumped"
)

// disturb cuts a network or makes it slow, for a while.
func (t *tormentor) disturb(ctx context.Context, s strike) error {
	p := t.stretch(s)
	t.scene.Say(string(s.fault))
	switch {
	case s.fault == SlowPostgres || s.fault == SlowChannel || s.fault == SlowKafka:
		p.delayBy(s.lasts / 10)
	case s.silent:
		p.silence()
	default:
		p.sever()
	}
	pause(ctx, s.lasts)
	p.mend()
	return nil
}

func (t *tormentor) stretch(s strike) *proxy {
	if s.role == demo.RoleDownstream {
		return t.behind.stretch(s)
	}
	switch s.fault {
	case CutChannel, SlowChannel:
		return t.struckChannel(s).proxy
	case CutKafka, SlowKafka:
		return t.kafka
	case CutEdge:
		return t.edge
	default:
		return t.postgres
	}
}

// loseAnswers has a few messages lost, as soon as they come by.
func (t *tormentor) loseAnswers(ctx context.Context, s strike) error {
	at, kinds := t.lossesOf(s)
	t.scene.Say(string(s.fault))
	const most = 4
	var all errgroup.Group
	for _, kind := range kinds {
		all.Go(func() error { return at.lose(ctx, kind, 1+s.turn%most) })
	}
	return all.Wait()
}

// moveLeaders gives about a third of all partitions another leader. It is tried again
// while the other replicas are behind.
func (t *tormentor) moveLeaders(ctx context.Context, s strike) error {
	const tries = 40
	for range tries {
		n, err := t.moveLeadersOnce(ctx, s)
		if n > 0 || errors.Is(err, devstack.ErrOneBroker) {
			t.note(leadersMoved, n)
			t.scene.Say(fmt.Sprintf("moved the leaders of %d partitions", n))
			return err
		}
		if !pause(ctx, time.Second) {
			return err
		}
	}
	return errors.New("no partition had another replica in step that could lead")
}

func (t *tormentor) moveLeadersOnce(ctx context.Context, s strike) (int, error) {
	t.heavy.Lock() // it needs the broker
	defer t.heavy.Unlock()
	const patience, third = 15 * time.Second, 3
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return t.scene.Fleet.MoveLeaders(ctx, func(_ string, p int32) bool { return (int(p)+s.turn)%third == 0 })
}

// freeze stops a process past its lease. Of a relay's shards somebody else must
// have become the owner meanwhile.
func (t *tormentor) freeze(ctx context.Context, s strike) error {
	if s.role != demo.RoleOutbox {
		return t.scene.Freeze(ctx, s.role, s.lasts)
	}
	before, errBefore := t.shardEpochsPatiently(ctx)
	if err := t.scene.Freeze(ctx, s.role, s.lasts); err != nil {
		return err
	}
	after, errAfter := t.shardEpochsPatiently(ctx)
	if errBefore == nil && errAfter == nil {
		t.note(shardsTaken, int(after-before))
	}
	return nil
}

// shardEpochsPatiently asks again while the database is away.
func (t *tormentor) shardEpochsPatiently(ctx context.Context) (sum int64, err error) {
	const patience = 20 * time.Second
	for end := time.Now().Add(patience); ; {
		if sum, err = t.shardEpochs(ctx); err == nil || time.Now().After(end) || !pause(ctx, 200*time.Millisecond) {
			return sum, err
		}
	}
}

// shardEpochs sums up how often any shard of the outbox got an owner.
func (t *tormentor) shardEpochs(ctx context.Context) (sum int64, err error) {
	const patience = 3 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, t.scene.Fleet.DSN())
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	err = conn.QueryRow(ctx, `SELECT sum(epoch)::bigint FROM settleonce.outbox_shards`).Scan(&sum)
	return sum, err
}

// moveClock starts a process anew whose clock jumps while it works. It stays there
// until the process is started again for another reason. One that cannot start
// because of another fault is tried again.
func (t *tormentor) moveClock(ctx context.Context, s strike) error {
	const tries = 6
	for range tries {
		seen := false
		err := t.scene.StartAnew(ctx, s.role, func(admin string) (err error) {
			seen, err = t.seeJump(ctx, s, admin)
			return err
		}, clockjump.Variable+"="+s.jump.String())
		if seen || err != nil || !pause(ctx, time.Second) {
			return err
		}
	}
	return fmt.Errorf("a %s did not live until its clock jumped", s.role)
}

func (t *tormentor) seeJump(ctx context.Context, s strike, admin string) (seen bool, err error) {
	for end := time.Now().Add(s.jump.After + 3*time.Second); time.Now().Before(end) && pause(ctx, 100*time.Millisecond); {
		var ahead time.Duration
		if ahead, err = clockAhead(ctx, admin); err == nil && (ahead-s.jump.By).Abs() < s.jump.By.Abs()/2 {
			t.note(clocksMoved, 1)
			t.scene.Say(fmt.Sprintf("the clock of a %s jumped by %s", s.role, s.jump.By))
			return true, nil
		}
	}
	if err == nil && ctx.Err() == nil {
		return false, clockjump.ErrImpossible
	}
	return false, nil // it ended meanwhile, or the run did
}

// clockAhead is how far a process's clock is ahead of ours, by the date in its
// answers.
func clockAhead(ctx context.Context, admin string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/healthz", http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	at, err := http.ParseTime(response.Header.Get("Date"))
	return time.Until(at), err
}

package torture

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/settleonce/settleonce/internal/clockjump"
	"github.com/settleonce/settleonce/internal/demo"
	"github.com/settleonce/settleonce/internal/devstack"
	"github.com/settleonce/settleonce/internal/fleet"
)

// The effects that are counted beside what was lost.
const (
	leadersMoved = "partitions with another leader"
	shardsTaken  = "shards of a frozen relay that others took over"
	clocksMoved  = "clocks of workers that jumped"
)

// strike does one fault; one that cannot be done is noted, and the run goes on.
func (t *tormentor) strike(ctx context.Context, s strike) {
	err := t.do(ctx, s)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err == nil:
		t.struck[s.fault]++
		if g, ok := t.guests[s.role]; ok {
			t.did[g.note(string(s.fault))]++
		}
	case ctx.Err() == nil:
		t.failed = append(t.failed, fmt.Sprintf("%s: %s", s.fault, err))
	}
}

func (t *tormentor) do(ctx context.Context, s strike) error {
	switch s.fault {
	case Kill:
		return t.scene.Kill(ctx, s.role)
	case Crash:
		return t.crash(ctx, s)
	case Freeze:
		return t.freeze(ctx, s)
	case Kafka:
		return t.alone(s.fault, func() error {
			t.scene.Say("stopped the broker")
			return t.scene.Fleet.RestartKafka(ctx, s.lasts)
		})
	case Postgres:
		return t.alone(s.fault, func() error {
			t.scene.Say("crashed the database")
			return t.scene.Fleet.RestartPostgres(ctx, s.lasts)
		})
	case Backends:
		return t.alone(s.fault, func() error { return t.terminate(ctx) })
	case CutPostgres, CutChannel, CutKafka, CutEdge, SlowPostgres, SlowChannel, SlowKafka:
		return t.disturb(ctx, s)
	case Leader:
		return t.moveLeaders(ctx, s)
	case AmbiguousProduce, AmbiguousCommit, CommitLost:
		return t.loseAnswers(ctx, s)
	case Clock:
		return t.moveClock(ctx, s)
	case Channel:
		return t.misbehave(ctx, s)
	case OperatorReplay, Reset:
		return t.useTools(ctx, s)
	case Replay:
		return t.scene.Replay(ctx, 200, func(n int) int { return int(s.at) % n })
	default:
		return fmt.Errorf("nobody knows how to do %s", s.fault)
	}
}

func (t *tormentor) crash(ctx context.Context, s strike) error {
	patience := 8 * time.Second
	if s.role == demo.RoleDownstream { // it must join its group again before, and there must be events
		patience += 3 * lease
	}
	reached, err := t.scene.CrashAt(ctx, s.role, s.point, ":"+strconv.Itoa(s.turn), patience)
	if reached {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.points[s.role+" "+string(s.point)]++
	}
	return err
}

// terminate ends about half of the database's sessions, wherever they are.
func (t *tormentor) terminate(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, t.scene.Fleet.DSN())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	_, err = conn.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' AND random() < 0.5`)
	return err
}

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
	fleet.Pause(ctx, s.lasts)
	p.mend()
	return nil
}

func (t *tormentor) stretch(s strike) *proxy {
	if g, ok := t.guests[s.role]; ok {
		return g.stretch(s)
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
		if errors.Is(err, errLate) || !fleet.Pause(ctx, time.Second) {
			return err
		}
	}
	return errors.New("no partition had another replica in step that could lead")
}

func (t *tormentor) moveLeadersOnce(ctx context.Context, s strike) (moved int, err error) {
	const patience, third = 15 * time.Second, 3
	err = t.alone(s.fault, func() error {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		moved, err = t.scene.Fleet.MoveLeaders(ctx, func(_ string, p int32) bool { return (int(p)+s.turn)%third == 0 })
		return err
	})
	return moved, err
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
		if sum, err = t.shardEpochs(ctx); err == nil || time.Now().After(end) || !fleet.Pause(ctx, 200*time.Millisecond) {
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
		if seen || err != nil || !fleet.Pause(ctx, time.Second) {
			return err
		}
	}
	return fmt.Errorf("a %s did not live until its clock jumped", s.role)
}

func (t *tormentor) seeJump(ctx context.Context, s strike, admin string) (seen bool, err error) {
	for end := time.Now().Add(s.jump.After + 3*time.Second); time.Now().Before(end) && fleet.Pause(ctx, 100*time.Millisecond); {
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

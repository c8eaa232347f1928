package torture

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/settleonce/settleonce/internal/fleet"
)

// useTools is what an operator does.
func (t *tormentor) useTools(ctx context.Context, s strike) error {
	if s.fault == Reset {
		return t.reset(ctx, s)
	}
	return t.alone(s.fault, func() error { return t.operate(ctx) })
}

// replayedTopics are what an operator has published again.
var replayedTopics = []string{"payment.commands", "payment.events", "payment.replies"}

// operate has an operator publish again what came lately, and send the dead letters of
// the last minute back to where they came from.
func (t *tormentor) operate(ctx context.Context) error {
	for _, topic := range replayedTopics {
		if err := t.again(ctx, "replayed of "+topic, "published", "replay", "--topic", topic, "--since", "10s"); err != nil {
			return err
		}
	}
	return t.again(ctx, "redriven dead letters", "sent", "deadletter", "redrive", "--matching", "--since", "1m")
}

// eventsAgain counts what resets had delivered again.
const eventsAgain = "records delivered again by setting their reader's group back"

// reset has an operator stop a guest, set its groups back, and start it again. It
// is tried again while broker or database are being restarted, which takes as long as
// it takes: the guest works meanwhile. Each try stops it for longer, and the first reset
// of a run is not given up: on a slow machine the operator's tool alone takes its time.
func (t *tormentor) reset(ctx context.Context, s strike) error {
	const patience = 5 * time.Minute
	at := t.guests[s.role]
	var args []string
	if s.half {
		args = append(args, "--since", (time.Since(t.begun) / 2).Round(time.Second).String())
	}
	begun := time.Now()
	for try := 1; ; try++ {
		t.awaitRead(ctx, at)
		err := t.scene.Halt(ctx, s.role, func() error { return t.resetHalted(ctx, at, args, time.Duration(2*min(try, 10))*lease) })
		if err == nil || time.Since(begun) > patience && t.done(Reset) || !fleet.Pause(ctx, time.Second) {
			return err
		}
	}
}

// errBusy says that broker or database are being restarted.
var errBusy = errors.New("broker or database were being restarted all the time")

// resetHalted sets the groups of a stopped guest back. A member that was killed
// before is taken for one that runs until its session ends.
func (t *tormentor) resetHalted(ctx context.Context, at *guest, args []string, patience time.Duration) error {
	err := errBusy
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if t.heavy.TryLock() { // it needs broker and database
			err = t.resetGroups(ctx, at, args)
			t.heavy.Unlock()
		}
		if err == nil || !fleet.Pause(ctx, time.Second/2) {
			break
		}
	}
	return err
}

func (t *tormentor) resetGroups(ctx context.Context, at *guest, args []string) error {
	for _, g := range at.groups {
		if err := t.operator(ctx, at.note(eventsAgain), "again", append([]string{"replay", "--topic", g.topic, "--group", g.name}, args...)...); err != nil {
			return err
		}
	}
	return nil
}

// awaitRead waits until the guest has read nearly everything: the more is delivered to
// it again.
func (t *tormentor) awaitRead(ctx context.Context, at *guest) {
	const patience, few = 20 * time.Second, 100
	end := time.Now().Add(patience)
	for _, g := range at.groups {
		for time.Now().Before(end) {
			if lag, err := t.scene.Fleet.Lag(ctx, g.name, t.cfg.Fleet.Prefix+g.topic); err == nil && lag < few || !fleet.Pause(ctx, 200*time.Millisecond) {
				break
			}
		}
	}
}

// nothing is how a tool says that no record was in question.
var nothing = regexp.MustCompile(`"matching": *0\b`)

// again runs a tool up to three times: other faults are at work beside it.
func (t *tormentor) again(ctx context.Context, what, count string, args ...string) error {
	for try := 1; ; try++ {
		err := t.operator(ctx, what, count, args...)
		if err == nil || try == 3 || !fleet.Pause(ctx, time.Second) {
			return err
		}
	}
}

// operator runs a tool that changes something, and notes the count that it shows under
// the name.
func (t *tormentor) operator(ctx context.Context, what, count string, args ...string) error {
	args = append(args, "--rate", "0", "--execute", "--actor", "torture", "--reason", "a drill", "--output", "json")
	out, err := t.scene.Fleet.Command(ctx, args...)
	if err != nil {
		return err
	}
	if nothing.MatchString(out) {
		return nil
	}
	found := regexp.MustCompile(`"` + count + `": *(\d+)`).FindStringSubmatch(out)
	if found == nil {
		return errors.New("the tool does not say what it did: " + args[0])
	}
	n, err := strconv.Atoi(found[1])
	t.note(what, n)
	t.scene.Say(fmt.Sprintf("an operator: %s, %d", what, n))
	return err
}

package torture

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/settleonce/settleonce/internal/check"
	"github.com/settleonce/settleonce/internal/demo"
	"github.com/settleonce/settleonce/internal/devstack"
	"github.com/settleonce/settleonce/internal/fleet"
	"github.com/settleonce/settleonce/payment"
)

// rolesRefused is an effect: roles that did not start, as they must not.
const rolesRefused = "roles that refused to start on commands that outlive their keys"

// retention is the setting of a topic that says how long it keeps records.
const retention = "retention.ms"

// refusal is what a role says that does not start.
const refusal = "keeps records longer than the window"

// refuse starts a role on a command topic that keeps records for longer than their
// keys are known: it must not start (G14), since a copy of a command would be charged
// whose key is forgotten. Then it sets the topic back. It comes before the workers.
func (t *tormentor) refuse(ctx context.Context, f *fleet.Fleet) error {
	topic := payment.NewTopics(t.cfg.Fleet.Prefix).Commands
	found, err := f.Client().DescribeTopics(ctx, []string{topic})
	if err != nil {
		return fmt.Errorf("ask how long commands are kept: %w", err)
	}
	before := found[0].Config[retention]
	tooLong := strconv.FormatInt((payment.Freshness{}.WithDefaults().Window + 24*time.Hour).Milliseconds(), 10)
	if err := devstack.SetTopicConfig(ctx, f.Brokers(), topic, retention, tooLong); err != nil {
		return err
	}
	roles := []string{demo.RoleConsumer, demo.RoleOutbox, demo.RoleReconciler}
	err = t.mustNotStart(ctx, f, roles[t.cfg.Seed%uint64(len(roles))])
	return errors.Join(err, devstack.SetTopicConfig(ctx, f.Brokers(), topic, retention, before))
}

// mustNotStart notes a violation where the role starts all the same.
func (t *tormentor) mustNotStart(ctx context.Context, f *fleet.Fleet, role string) error {
	const apart = 9 // from the numbers of the run's own workers
	child, err := f.StartWorker(ctx, role, apart)
	switch {
	case err == nil:
		t.seen = append(t.seen, check.Violation{
			Guarantee: "G14", Text: "a " + role + " started on a command topic that keeps records longer than their keys are known",
		})
		return child.Kill()
	case !strings.Contains(err.Error(), refusal):
		return fmt.Errorf("start a role that must not start: %w", err)
	}
	t.note(rolesRefused, 1)
	return nil
}

package torture

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/settleonce/settleonce/internal/demo"
	"github.com/settleonce/settleonce/internal/fleet"
)

// Two channels of each run are there for the bounds on what is asked (G13). They have
// payments of their own and no others, nothing else strikes them or their network, and
// what they do is the same for every seed.
const (
	// crowded answers hundreds of requests too late, all at once: so many payments are
	// unknown in the same second, and the budget lets a part of them be asked about.
	crowded = "crowded"
	// limited takes few requests a second, queries and sends together. It contradicts all
	// that it said, which makes us ask about each charge again and again, and is out of
	// service for a while.
	limited = "limited"
)

// fewRequests is the requests a second that limited takes. It is far below the floor of the
// query budget, so that it is the limit that binds.
const fewRequests = "6"

var aside = []mix{
	{crowded, "400 answers come too late at once", "", nil, false},
	{limited, fewRequests + " requests a second, contradictions, out of service for a while", "", map[string]string{"rate-limit": fewRequests}, false},
}

// lots are the payments of these channels. limited has as many as it takes before it
// contradicts them, and none while it is out of service: a run that waits for little
// would not see their end.
var lots = map[string][]demo.Lot{
	crowded: {{Payments: 400, From: 6 * time.Second, Over: 300 * time.Millisecond, Fault: "slow:3s"}},
	limited: {{Payments: 36, Over: 5 * time.Second}},
}

// squeezed are the two channels.
func squeezed() []demo.Channel {
	out := channelsOf(aside)
	for i := range out {
		c := &out[i]
		c.Lots, c.CallsBack = lots[c.Name], c.Name == limited
	}
	return out
}

// setAside keeps a channel from what strikes the others, and reports whether it does.
func (t *tormentor) setAside(s *fleet.Sim) bool {
	if _, apart := lots[s.Channel]; !apart {
		return false
	}
	if s.Channel == limited {
		t.limited = &provider{name: s.Channel, url: s.URL}
	}
	return true
}

// squeeze is what limited does, counted from the begin: it contradicts itself while it
// answers, and then while it turns everything away.
func (t *tormentor) squeeze(ctx context.Context) error {
	var failed []error
	many, few := t.limited.contradict(4), t.limited.contradict(3)
	for _, step := range []struct {
		at time.Duration
		do func(context.Context) error
	}{
		{6 * time.Second, many},
		{10 * time.Second, t.limited.outOfService},
		{11 * time.Second, few},
		{17 * time.Second, few},
		{24 * time.Second, few},
		{31 * time.Second, few},
		{38 * time.Second, t.limited.inService},
	} {
		if !fleet.Pause(ctx, time.Until(t.begun.Add(step.at))) {
			break
		}
		if err := step.do(ctx); err != nil && ctx.Err() == nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(append(failed, t.limited.inService(ctx))...)
}

// contradict has every charge contradicted so many times.
func (p *provider) contradict(times int) func(context.Context) error {
	return func(ctx context.Context) error {
		return p.order(ctx, http.MethodPost, "/admin/callbacks/contradict", fmt.Sprintf(`{"times":%d}`, times))
	}
}

func (p *provider) outOfService(ctx context.Context) error {
	return p.order(ctx, http.MethodPatch, "/admin/behaviour", `{"rates":{"error_before":1,"query_error":1}}`)
}

func (p *provider) inService(ctx context.Context) error {
	return p.order(context.WithoutCancel(ctx), http.MethodPatch, "/admin/behaviour", `{"rates":{"error_before":0,"query_error":0}}`)
}

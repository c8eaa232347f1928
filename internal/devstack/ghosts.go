package devstack

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ghosts removes members of consumer groups that died while the embedded broker
// answered their join. It starts a member's session with that answer, so a
// member whose connection was gone by then never times out: its partitions are
// never read again (G5), or every join of the others waits for it, and each of
// them that gives up and joins anew makes the broker wait longer. Apache Kafka has
// no such ghosts; here somebody must look for members without a sign of life.
type ghosts struct {
	client *kgo.Client
	log    zerolog.Logger
	stop   context.CancelFunc
	done   chan struct{}

	mu sync.Mutex
	// sessions are the longest that a group's members asked for.
	sessions map[string]time.Duration
	// heard is when a member gave its last sign of life, or was first seen.
	heard map[groupMember]time.Time
}

type groupMember struct{ group, id string }

// ghostWatch is how often groups are looked at.
const ghostWatch = time.Second

func watchGhosts(cluster *kfake.Cluster, log zerolog.Logger) (*ghosts, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	if err != nil {
		return nil, fmt.Errorf("connect to the embedded broker: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	g := &ghosts{
		client: client, log: log, stop: cancel, done: make(chan struct{}),
		sessions: map[string]time.Duration{}, heard: map[groupMember]time.Time{},
	}
	for _, key := range []kmsg.Key{kmsg.JoinGroup, kmsg.SyncGroup, kmsg.Heartbeat, kmsg.OffsetCommit} {
		cluster.ControlKey(int16(key), func(request kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			g.hear(request)
			return nil, nil, false //nolint:nilnil // the broker handles it
		})
	}
	go g.run(ctx)
	return g, nil
}

func (g *ghosts) close() {
	g.stop()
	<-g.done
	g.client.Close()
}

// hear notes a member's sign of life.
func (g *ghosts) hear(request kmsg.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch r := request.(type) {
	case *kmsg.JoinGroupRequest:
		g.sessions[r.Group] = max(g.sessions[r.Group], time.Duration(r.SessionTimeoutMillis)*time.Millisecond)
		g.heard[groupMember{r.Group, r.MemberID}] = time.Now()
	case *kmsg.SyncGroupRequest:
		g.heard[groupMember{r.Group, r.MemberID}] = time.Now()
	case *kmsg.HeartbeatRequest:
		g.heard[groupMember{r.Group, r.MemberID}] = time.Now()
	case *kmsg.OffsetCommitRequest:
		g.heard[groupMember{r.Group, r.MemberID}] = time.Now()
	}
}

func (g *ghosts) run(ctx context.Context) {
	defer close(g.done)
	ticker := time.NewTicker(ghostWatch)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := g.look(ctx); err != nil && ctx.Err() == nil {
			g.log.Warn().Err(err).Msg("cannot look for dead members of consumer groups")
		}
	}
}

// look removes the silent members of every group.
func (g *ghosts) look(ctx context.Context) error {
	groups := g.groups()
	if len(groups) == 0 {
		return nil
	}
	request := kmsg.NewPtrDescribeGroupsRequest()
	request.Groups = groups
	response, err := request.RequestWith(ctx, g.client)
	if err != nil {
		return fmt.Errorf("describe groups: %w", err)
	}
	for i := range response.Groups {
		if err := g.remove(ctx, response.Groups[i].Group, g.silent(&response.Groups[i])); err != nil {
			return err
		}
	}
	return nil
}

func (g *ghosts) groups() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	names := make([]string, 0, len(g.sessions))
	for name := range g.sessions {
		names = append(names, name)
	}
	return names
}

// silent returns the members of a group that gave no sign of life for a session
// and some more, and forgets those that left. While a group rebalances, members
// wait for an answer and have nothing to say: then it is the longest silent one
// alone, since the others may only be waiting for it. That must be over before
// they give up and join anew, each leaving one more ghost behind.
func (g *ghosts) silent(group *kmsg.DescribeGroupsResponseGroup) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	now, present, patience := time.Now(), map[string]bool{}, g.sessions[group.Group]+ghostWatch
	var silent []string
	for i := range group.Members {
		m := groupMember{group.Group, group.Members[i].MemberID}
		present[m.id] = true
		if at, known := g.heard[m]; !known {
			g.heard[m] = now
		} else if now.Sub(at) > patience {
			silent = append(silent, m.id)
		}
	}
	if group.State != "Stable" && len(silent) > 1 {
		silent = []string{slices.MinFunc(silent, func(a, b string) int {
			return g.heard[groupMember{group.Group, a}].Compare(g.heard[groupMember{group.Group, b}])
		})}
	}
	for m := range g.heard {
		if m.group == group.Group && !present[m.id] {
			delete(g.heard, m)
		}
	}
	return silent
}

func (g *ghosts) remove(ctx context.Context, group string, members []string) error {
	if len(members) == 0 {
		return nil
	}
	request := kmsg.NewPtrLeaveGroupRequest()
	request.Group = group
	for _, id := range members {
		m := kmsg.NewLeaveGroupRequestMember()
		m.MemberID = id
		request.Members = append(request.Members, m)
	}
	if _, err := request.RequestWith(ctx, g.client); err != nil {
		return fmt.Errorf("remove dead members from group %s: %w", group, err)
	}
	g.log.Info().Str("group", group).Int("members", len(members)).Msg("removed dead members of a consumer group")
	return nil
}

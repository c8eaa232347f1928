// Package apachekafka runs Apache Kafka from its published Maven artifacts, without Docker: one node or
// three, in KRaft mode, on free loopback ports. It serves the tests that must see a real broker, and
// `settleonce demo --kafka apache`.
package apachekafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/settleonce/settleonce/internal/childproc"
	"github.com/settleonce/settleonce/internal/folderlock"
)

const (
	defaultStartTimeout = 5 * time.Minute
	stopTimeout         = 15 * time.Second
	replicas            = 3
)

// Config says how many nodes run and where they keep their data.
type Config struct {
	// Brokers is 1 or 3. With three, topics have three replicas and need two of them to accept a
	// record (min.insync.replicas), as in production. Defaults to 1.
	Brokers int
	// Controller runs one more node that is the only controller, so that metadata goes on whatever
	// happens to the brokers. Defaults to false: every broker is a controller too, and without a majority
	// of them nothing about the cluster can change.
	Controller bool
	// DataDir keeps the nodes' data over a restart. Defaults to a temporary folder that Stop removes.
	DataDir string
	// Heap bounds each JVM's heap, in Java's notation. Defaults to "512m" for one node, "384m" for three.
	Heap string
	// Settings are further settings of server.properties, and win over ours. Defaults to none.
	Settings map[string]string
	// StartTimeout bounds a start or restart, without the time of a fetch. Defaults to 5 minutes, enough
	// for a machine that is busy with other things.
	StartTimeout time.Duration
	// Log is told what happens. Defaults to nothing.
	Log zerolog.Logger
}

// WithDefaults returns a copy with unset fields filled in.
func (c Config) WithDefaults() Config {
	if c.Brokers == 0 {
		c.Brokers = 1
	}
	if c.Heap == "" {
		c.Heap = "512m"
		if c.Brokers > 1 {
			c.Heap = "384m"
		}
	}
	if c.StartTimeout == 0 {
		c.StartTimeout = defaultStartTimeout
	}
	return c
}

// Validate reports the first field that cannot work, and what to change.
func (c Config) Validate() error {
	switch {
	case c.Brokers != 1 && c.Brokers != replicas:
		return fmt.Errorf("apache kafka: %d brokers: use 1 or %d", c.Brokers, replicas)
	case c.StartTimeout < 0:
		return fmt.Errorf("apache kafka: start timeout %s is negative: use 0 for the default", c.StartTimeout)
	default:
		return nil
	}
}

// Cluster is a running Apache Kafka. Its methods may be called from any goroutine, but not two for the
// same node at once.
type Cluster struct {
	cfg   Config
	dir   string
	owned bool // dir is ours to remove
	lock  *folderlock.Lock
	nodes []*node // the brokers
	// controller is the node that only controls; nil where the brokers do.
	controller *node
}

// Start runs the nodes, fetching the jars at the first start on a machine. It returns once all of them
// accept clients. The nodes end with Stop, or when this process ends in any way.
//
// For a second or so after the first start a coordinator may still answer "not coordinator" or "load in
// progress"; clients have to repeat, as in production after a failover.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	java, err := findJava(ctx)
	if err != nil {
		return nil, fmt.Errorf("apache kafka: %w", err)
	}
	lib, err := fetchJars(ctx, cfg.Log)
	if err != nil {
		return nil, err
	}
	c := &Cluster{cfg: cfg}
	if err := c.openFolder(); err != nil {
		return nil, err
	}
	if err := c.startNodes(ctx, jvm{java: java, lib: lib, heap: cfg.Heap}); err != nil {
		return nil, errors.Join(err, c.Stop(context.WithoutCancel(ctx)))
	}
	return c, nil
}

func (c *Cluster) openFolder() error {
	var err error
	if c.cfg.DataDir == "" {
		c.owned = true
		c.dir, err = os.MkdirTemp("", "settleonce-kafka-")
	} else {
		c.dir, err = filepath.Abs(c.cfg.DataDir)
	}
	if err != nil {
		return fmt.Errorf("find data folder: %w", err)
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return fmt.Errorf("make data folder: %w", err)
	}
	c.lock, err = folderlock.Try(filepath.Join(c.dir, "lock"))
	return err
}

func (c *Cluster) startNodes(ctx context.Context, vm jvm) error {
	ports, err := childproc.FreePorts(ctx, 2*(c.cfg.Brokers+1))
	if err != nil {
		return err
	}
	for id := 1; id <= c.cfg.Brokers+1; id++ {
		n := &node{
			id: id, jvm: vm, port: ports[2*id-2], controllerPort: ports[2*id-1],
			dir: filepath.Join(c.dir, fmt.Sprintf("node-%d", id)),
		}
		switch {
		case id <= c.cfg.Brokers:
			c.nodes = append(c.nodes, n)
		case c.cfg.Controller:
			c.controller = n
		}
	}
	cluster, err := clusterID(c.dir)
	if err != nil {
		return err
	}
	ctx, cancel := c.startContext(ctx)
	defer cancel()
	var group errgroup.Group
	for _, n := range c.all() {
		group.Go(func() error {
			if err := n.prepare(ctx, cluster, c.properties(n)); err != nil {
				return err
			}
			return n.start(ctx)
		})
	}
	return group.Wait()
}

func (c *Cluster) startContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, c.cfg.StartTimeout,
		fmt.Errorf("apache kafka did not start within %s", c.cfg.StartTimeout))
}

// all are the nodes, the one that only controls among them.
func (c *Cluster) all() []*node {
	if c.controller == nil {
		return c.nodes
	}
	return append(slices.Clone(c.nodes), c.controller)
}

// Brokers are the addresses to bootstrap from, in the order of the nodes.
func (c *Cluster) Brokers() []string {
	list := make([]string, 0, len(c.nodes))
	for _, n := range c.nodes {
		list = append(list, n.address())
	}
	return list
}

// Kill sends SIGKILL to node i, counted from 0, and waits until it is gone.
func (c *Cluster) Kill(i int) error {
	c.cfg.Log.Warn().Int("node", c.nodes[i].id).Msg("killing a node of Apache Kafka")
	return c.nodes[i].proc.Kill()
}

// Shutdown ends node i, counted from 0, in good order: it gives its leaderships away first. It is killed
// at the end of ctx.
func (c *Cluster) Shutdown(ctx context.Context, i int) error {
	c.cfg.Log.Info().Int("node", c.nodes[i].id).Msg("stopping a node of Apache Kafka")
	return c.nodes[i].stop(ctx)
}

// ID is the id of node i, counted from 0, among the brokers.
func (c *Cluster) ID(i int) int { return c.nodes[i].id }

// Restart starts node i again, counted from 0, on its old ports and data, after Kill or Shutdown. It returns once
// the node accepts clients.
func (c *Cluster) Restart(ctx context.Context, i int) error {
	ctx, cancel := c.startContext(ctx)
	defer cancel()
	return c.nodes[i].start(ctx)
}

// Pid is the process id of node i, counted from 0.
func (c *Cluster) Pid(i int) int { return c.nodes[i].proc.Pid() }

// Stop ends the nodes in good order, until ctx ends or 15 s have passed; then it kills them. Safe to
// call more than once.
func (c *Cluster) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	var group errgroup.Group
	for _, n := range c.nodes {
		// Nodes that leave together may wait for a quorum that is gone; killing them is no failure.
		group.Go(func() error { return n.stop(ctx) })
	}
	errs := []error{group.Wait()}
	if c.controller != nil {
		errs = append(errs, c.controller.stop(ctx)) // last: brokers ask it whether they may go
	}
	errs = append(errs, c.lock.Release())
	if c.owned {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	return errors.Join(errs...)
}

// properties is the server.properties of one node.
func (c *Cluster) properties(n *node) string {
	controllers := c.nodes
	if c.controller != nil {
		controllers = []*node{c.controller}
	}
	voters := make([]string, 0, len(controllers))
	for _, v := range controllers {
		voters = append(voters, fmt.Sprintf("%d@%s", v.id, v.controllerAddress()))
	}
	all := baseProperties(len(c.nodes))
	all["node.id"] = strconv.Itoa(n.id)
	all["controller.quorum.voters"] = strings.Join(voters, ",")
	switch c.controller {
	case nil:
		all["process.roles"] = "broker,controller"
		all["listeners"] = "PLAINTEXT://" + n.address() + ",CONTROLLER://" + n.controllerAddress()
	case n:
		all["process.roles"] = "controller"
		all["listeners"] = "CONTROLLER://" + n.controllerAddress()
		delete(all, "inter.broker.listener.name")
	default:
		all["process.roles"] = "broker"
		all["listeners"] = "PLAINTEXT://" + n.address()
	}
	all["log.dirs"] = filepath.Join(n.dir, "data")
	maps.Copy(all, c.cfg.Settings)
	lines := make([]string, 0, len(all))
	for key, value := range all {
		lines = append(lines, key+"="+value)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

// baseProperties are the same on all nodes. Internal topics get few partitions: each costs files and
// time at the first start, and one machine serves them all.
func baseProperties(brokers int) map[string]string {
	copies, insync := strconv.Itoa(brokers), strconv.Itoa(brokers/2+1)
	return map[string]string{
		"controller.listener.names":                        "CONTROLLER",
		"inter.broker.listener.name":                       "PLAINTEXT",
		"listener.security.protocol.map":                   "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"auto.create.topics.enable":                        "false",
		"num.partitions":                                   "16",
		"default.replication.factor":                       copies,
		"min.insync.replicas":                              insync,
		"offsets.topic.num.partitions":                     "4",
		"offsets.topic.replication.factor":                 copies,
		"transaction.state.log.num.partitions":             "4",
		"transaction.state.log.replication.factor":         copies,
		"transaction.state.log.min.isr":                    insync,
		"share.coordinator.state.topic.num.partitions":     "1",
		"share.coordinator.state.topic.replication.factor": copies,
		"share.coordinator.state.topic.min.isr":            insync,
		"group.initial.rebalance.delay.ms":                 "0",
	}
}

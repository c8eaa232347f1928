package apachekafka

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/settleonce/settleonce/internal/childproc"
)

const (
	readyPoll    = 50 * time.Millisecond
	logTailBytes = 3000
)

//go:embed log4j2.properties
var logConfig []byte

// startedLine is what a node logs once it accepts clients.
var startedLine = []byte("Kafka Server started")

// jvm is what all nodes are run with.
type jvm struct {
	java, lib, heap string
}

func (v jvm) classPath() []string { return []string{"-cp", filepath.Join(v.lib, "*")} }

// node is one broker that is also a controller. Its ports stay the same for the life of the cluster.
type node struct {
	id, port, controllerPort int
	dir                      string
	jvm                      jvm
	proc                     *childproc.Process // nil before the first start
}

func (n *node) address() string           { return loopback(n.port) }
func (n *node) controllerAddress() string { return loopback(n.controllerPort) }
func (n *node) config() string            { return filepath.Join(n.dir, "server.properties") }
func (n *node) log() string               { return filepath.Join(n.dir, "server.log") }
func (n *node) logSettings() string       { return filepath.Join(n.dir, "log4j2.properties") }

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// prepare writes the node's files and formats its storage unless that was done at an earlier start.
func (n *node) prepare(ctx context.Context, cluster, properties string) error {
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return fmt.Errorf("make folder of node %d: %w", n.id, err)
	}
	if err := os.WriteFile(n.config(), []byte(properties), 0o600); err != nil {
		return fmt.Errorf("write configuration of node %d: %w", n.id, err)
	}
	if err := os.WriteFile(n.logSettings(), logConfig, 0o600); err != nil {
		return fmt.Errorf("write log configuration of node %d: %w", n.id, err)
	}
	args := append(n.jvm.classPath(), "-XX:TieredStopAtLevel=1", "-Dlog4j2.configurationFile="+n.logSettings(),
		"kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", cluster, "-c", n.config())
	if out, err := exec.CommandContext(ctx, n.jvm.java, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("format storage of node %d: %w\n%s", n.id, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// start runs the node and waits until it accepts clients.
func (n *node) start(ctx context.Context) error {
	log, err := os.OpenFile(n.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open log of node %d: %w", n.id, err)
	}
	defer func() { _ = log.Close() }() // the node has its own copy of the descriptor
	before, err := log.Stat()
	if err != nil {
		return fmt.Errorf("look at log of node %d: %w", n.id, err)
	}
	args := append(n.jvm.classPath(), "-Xms256m", "-Xmx"+n.jvm.heap, "-XX:+ExitOnOutOfMemoryError",
		"-Dlog4j2.configurationFile="+n.logSettings(), "kafka.Kafka", n.config())
	n.proc, err = childproc.Start(ctx, childproc.Config{
		Path: n.jvm.java, Args: args, Dir: n.dir, Output: log, DeathSignal: syscall.SIGKILL,
	})
	if err != nil {
		return err
	}
	if err := n.waitReady(ctx, before.Size()); err != nil {
		return fmt.Errorf("start node %d of apache kafka: %w%s", n.id, errors.Join(err, n.proc.Kill()), n.logTail(before.Size()))
	}
	return nil
}

// waitReady reads the log from where this start began: the lines of an earlier one are still there.
func (n *node) waitReady(ctx context.Context, from int64) error {
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		if bytes.Contains(n.logSince(from), startedLine) {
			return nil
		}
		select {
		case <-n.proc.Done():
			return fmt.Errorf("it ended: %w", n.proc.Err())
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

func (n *node) logSince(from int64) []byte {
	raw, err := os.ReadFile(n.log())
	if err != nil || int64(len(raw)) < from {
		return nil
	}
	return raw[from:]
}

func (n *node) logTail(from int64) string {
	raw := n.logSince(from)
	return "\n" + strings.TrimSpace(string(raw[max(0, len(raw)-logTailBytes):]))
}

// stop ends the node in good order, or kills it at the end of ctx.
func (n *node) stop(ctx context.Context) error {
	if n.proc == nil {
		return nil
	}
	if err := n.proc.Stop(ctx, syscall.SIGTERM); err != nil && ctx.Err() == nil {
		return err
	}
	return nil // stopped, or killed, which costs the next start a log recovery and nothing else
}

// clusterID is the identity of a data folder's cluster, made at its first start: 16 random bytes in the
// form that Apache Kafka uses.
func clusterID(dir string) (string, error) {
	path := filepath.Join(dir, "cluster.id")
	raw, err := os.ReadFile(path)
	if err == nil && len(raw) > 0 {
		return string(raw), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read cluster id: %w", err)
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	id[0] &= 0x7f           // a leading dash would read as an option
	text := base64.RawURLEncoding.EncodeToString(id[:])
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("write cluster id: %w", err)
	}
	return text, nil
}

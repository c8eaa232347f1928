package torture

import (
	"fmt"
	"slices"
	"strings"
)

// Fault names a way to break things.
type Fault string

// The faults.
const (
	Kill         Fault = "kill"          // SIGKILL of a worker
	Crash        Fault = "crash"         // SIGKILL of a worker exactly between two steps
	Freeze       Fault = "freeze"        // SIGSTOP of a worker past its lease, then SIGCONT
	Kafka        Fault = "kafka"         // the broker is away; Apache Kafka by SIGKILL
	Postgres     Fault = "postgres"      // the database breaks off and recovers
	Backends     Fault = "backends"      // sessions of the database are terminated
	CutPostgres  Fault = "cut-postgres"  // no network between workers and database
	SlowPostgres Fault = "slow-postgres" // a slow network between workers and database
	CutChannel   Fault = "cut-channel"   // no network between workers and channel
	SlowChannel  Fault = "slow-channel"  // a slow network between workers and channel
	Channel      Fault = "channel"       // the channel misbehaves in one of its ways
	Replay       Fault = "replay"        // a slice of the commands is published again

	CutKafka         Fault = "cut-kafka"         // no network between workers and broker
	SlowKafka        Fault = "slow-kafka"        // a slow network between workers and broker
	Leader           Fault = "leader"            // partitions get another leader, groups another coordinator
	AmbiguousProduce Fault = "ambiguous-produce" // the broker stores what is published, and its answer is lost
	AmbiguousCommit  Fault = "ambiguous-commit"  // the broker stores offsets, and its answer is lost
	CommitLost       Fault = "commit-lost"       // sessions die at their COMMIT: before it, or after it and before its answer
	Clock            Fault = "clock"             // the clock of a worker jumps, by seconds or hours, and stays there

	CutEdge        Fault = "cut-edge"        // no network between clients and providers, and the gateways
	OperatorReplay Fault = "operator-replay" // an operator replays commands, events and replies, and redrives dead letters
	Reset          Fault = "reset"           // an operator sets the group of the service downstream back
)

// Faults lists all of them.
func Faults() []Fault {
	return []Fault{
		Kill, Crash, Freeze, Kafka, Postgres, Backends, CutPostgres, SlowPostgres, CutChannel, SlowChannel, Channel, Replay,
		CutKafka, SlowKafka, Leader, AmbiguousProduce, AmbiguousCommit, CommitLost, Clock, CutEdge, OperatorReplay, Reset,
	}
}

// ParseFaults reads a list of names, separated by commas; an empty one means all.
func ParseFaults(text string) ([]Fault, error) {
	if text == "" {
		return Faults(), nil
	}
	var out []Fault
	for name := range strings.SplitSeq(text, ",") {
		f := Fault(strings.TrimSpace(name))
		if !slices.Contains(Faults(), f) {
			return nil, fmt.Errorf("there is no fault %q: use some of %v", name, Faults())
		}
		out = append(out, f)
	}
	return out, nil
}

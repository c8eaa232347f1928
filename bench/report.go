package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/settleonce/settleonce/internal/fleet"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/payment"
)

// Report is what a measurement came to.
type Report struct {
	Broker     string  `json:"broker"`
	Channel    string  `json:"channel"`
	LatencyMS  float64 `json:"channelLatencyMs"`
	Rate       float64 `json:"ratePerSecond"`
	Duplicates float64 `json:"duplicateShare"`
	Workers    int     `json:"workers"`
	Seconds    float64 `json:"seconds"`

	// PaymentsPerSecond counts outcome events read back from Kafka.
	PaymentsPerSecond float64 `json:"paymentsPerSecond"`
	P50               float64 `json:"p50Ms"`
	P95               float64 `json:"p95Ms"`
	P99               float64 `json:"p99Ms"`
	Max               float64 `json:"maxMs"`
	// WorkerCPU is cores used by all workers, WorkerMemory the largest resident
	// memory of one, in MiB.
	WorkerCPU    float64 `json:"workerCores"`
	WorkerMemory float64 `json:"workerMemoryMiB"`

	Unique         int64 `json:"uniqueCommands"`
	Repeated       int64 `json:"repeatedDeliveries"`
	Outcomes       int64 `json:"outcomes"`
	RepliesToThem  int64 `json:"repliesToRepeats"`
	Missing        int64 `json:"missingOutcomes"`
	Charges        int   `json:"chargesAtChannel"`
	DoubleCharged  int   `json:"doubleCharged"`
	ChannelChecked bool  `json:"channelChecked"`
}

// Correct reports whether every command has its one outcome and one charge.
func (r Report) Correct() bool {
	return r.Missing == 0 && r.DoubleCharged == 0 && r.RepliesToThem >= r.Repeated &&
		(!r.ChannelChecked || int64(r.Charges) == r.Unique)
}

type snapshot struct {
	at       time.Time
	outcomes int64
	cpu      time.Duration
	memory   int64
}

func (l *load) snapshot(workers []*fleet.Child) snapshot {
	s := snapshot{at: time.Now(), outcomes: l.outcomes.Load()}
	for _, w := range workers {
		cpu, memory := usage(w.Pid())
		s.cpu += cpu
		s.memory = max(s.memory, memory)
	}
	return s
}

// usage reads what a process used so far, on Linux; elsewhere it knows nothing.
func usage(pid int) (cpu time.Duration, memory int64) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const user, system, resident = 11, 12, 21
	if len(fields) <= resident {
		return 0, 0
	}
	const tick = 10 * time.Millisecond
	return time.Duration(number(fields[user])+number(fields[system])) * tick, number(fields[resident]) * int64(os.Getpagesize())
}

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func newReport(cfg Config, brokers []string, l *load, from, to snapshot) Report {
	r := Report{
		Broker: cfg.Fleet.Kafka, Channel: "http", LatencyMS: milliseconds(cfg.Latency), Rate: cfg.Rate, Duplicates: cfg.Duplicates,
		Workers: cfg.Workers, Seconds: to.at.Sub(from.at).Seconds(), WorkerMemory: float64(to.memory) / (1 << 20),
	}
	if r.Broker == "" {
		r.Broker = fleet.KafkaEmbedded
	}
	if len(cfg.Fleet.Brokers) > 0 {
		r.Broker = strings.Join(brokers, ",")
	}
	if cfg.Instant {
		r.Channel = "instant"
	}
	r.PaymentsPerSecond = float64(to.outcomes-from.outcomes) / r.Seconds
	r.WorkerCPU = (to.cpu - from.cpu).Seconds() / r.Seconds
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(l.latency)
	r.P50, r.P95, r.P99, r.Max = quantile(l.latency, 0.5), quantile(l.latency, 0.95), quantile(l.latency, 0.99), quantile(l.latency, 1)
	r.Unique, r.Repeated, r.Outcomes = l.unique.Load(), l.repeats.Load(), l.outcomes.Load()
	r.Missing = r.Unique - r.Outcomes
	return r
}

func quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return milliseconds(sorted[int(q*float64(len(sorted)-1))])
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// check counts from outside: the channel's ledger, and the replies topic.
func (r *Report) check(ctx context.Context, f *fleet.Fleet, l *load) error {
	if r.Channel == "http" {
		var ledger struct {
			Charges       int `json:"charges"`
			DoubleCharged int `json:"doubleCharged"`
		}
		if err := getJSON(ctx, f.SimURL()+"/ledger/summary", &ledger); err != nil {
			return err
		}
		r.Charges, r.DoubleCharged, r.ChannelChecked = ledger.Charges, ledger.DoubleCharged, true
	}
	deadline := time.Now().Add(drainFor)
	for {
		r.RepliesToThem = 0
		err := l.client.ReadAll(ctx, l.topics.Replies, func(record kafka.Record) error {
			for _, h := range record.Headers {
				if h.Key == "ce_type" && string(h.Value) != payment.ReplyOutcome.CEType() {
					r.RepliesToThem++
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("count replies: %w", err)
		}
		if r.RepliesToThem >= r.Repeated || time.Now().After(deadline) {
			return nil
		}
	}
}

func getJSON(ctx context.Context, url string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("ask the channel: %w", err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		return fmt.Errorf("read the channel's ledger: %w", err)
	}
	return nil
}

package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/demo"
	"github.com/settleonce/settleonce/internal/fleet"
)

func newDemo(p process) *cobra.Command {
	var cfg demo.Config
	var kills []string
	cmd := &cobra.Command{
		Use: "demo", Short: "Watch thousands of commands come out as one outcome each, while workers are killed", GroupID: sectionStart,
		Example: "  settleonce demo                                    one worker of each role is killed in the middle\n" +
			"  settleonce demo --kafka apache                     on Apache Kafka\n" +
			"  settleonce demo --kills 12 --seed 7                twelve kills, at moments that the seed gives\n" +
			"  settleonce demo --kill outbox@7.5 --kill sim@9     kills at these seconds",
		Long: "Runs a broker, a private Postgres, the channel simulator and two processes of each role on this machine, publishes\n" +
			"payment commands with everything that goes wrong among them, kills workers with SIGKILL and starts them again, and\n" +
			"waits until all is settled. The verdict is read from the topics and the channel's own ledger alone. Exit code 1 when\n" +
			"a guarantee is broken; data and logs are kept then.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, text := range kills {
				kill, err := demo.ParseKill(text)
				if err != nil {
					return asUsage(err)
				}
				cfg.Kill = append(cfg.Kill, kill)
			}
			return runDemo(cmd, p, cfg)
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Fleet.Kafka, "kafka", fleet.KafkaEmbedded, "broker to start: embedded or apache")
	f.IntVar(&cfg.Commands, "commands", 4000, "records to publish, about")
	f.Uint64Var(&cfg.Seed, "seed", 0, "makes the same commands, faults and kills again; 0: a random one, which is printed")
	f.IntVar(&cfg.Each, "each", 2, "processes per role")
	f.IntVar(&cfg.EdgeShare, "edge", 0, "of a hundred payments, how many come over HTTP instead of Kafka; with any, the channel calls back")
	f.StringArrayVar(&kills, "kill", nil, "ROLE@SECONDS to kill; roles are consumer, outbox, reconciler, sim; may be repeated")
	f.IntVar(&cfg.Kills, "kills", 0, "kills at random moments, over all roles; 0: one per role, -1: none")
	f.BoolVar(&cfg.KillSim, "kill-sim", false, "kill the channel simulator too; its ledger survives")
	f.DurationVar(&cfg.Patience, "patience", 0, "time for everything to settle; 0: 2m, and 5s more for each of --kills")
	f.StringVar(&cfg.Fleet.Dir, "dir", "", "folder for data and logs; empty: a temporary one, removed at the end")
	f.BoolVar(&cfg.Keep, "keep", false, "keep data and logs")
	offerOutput(cmd)
	return cmd
}

func runDemo(cmd *cobra.Command, p process, cfg demo.Config) error {
	if _, err := wantsJSON(cmd); err != nil {
		return err
	}
	live := newLive(p.stderr)
	cfg.Say, cfg.Progress = live.say, live.progress
	report, err := demo.Run(cmd.Context(), cfg)
	live.end()
	if report.Kept != "" {
		fmt.Fprintln(p.stderr, "data and logs are in", report.Kept)
	}
	if err != nil {
		return err
	}
	if err := show(cmd, report, demoTable); err != nil {
		return err
	}
	return verdictError(report)
}

// verdictError names what was broken.
func verdictError(r demo.Report) error {
	if r.Passed() {
		return nil
	}
	switch {
	case len(r.Violations) > 0:
		return checkError(r.Verdict)
	case len(r.Unsettled) > 0:
		return fmt.Errorf("patience ended before everything was settled: %s, and %d more; see the logs in %s", r.Unsettled[0], len(r.Unsettled)-1, r.Kept)
	default:
		return fmt.Errorf("processes ended by themselves: %s; see their logs in %s", strings.Join(r.Crashed, ", "), r.Kept)
	}
}

// live shows what is going on: a bar on a terminal, a line now and then elsewhere.
type live struct {
	mu   sync.Mutex
	out  io.Writer
	bar  *progressbar.ProgressBar
	term bool
	last time.Time
}

func newLive(out io.Writer) *live { return &live{out: out, term: isTerminal(out)} }

func (l *live) say(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bar != nil {
		_ = l.bar.Clear()
	}
	fmt.Fprintln(l.out, "·", what)
}

// plainEvery is how often a line is printed where there is no terminal.
const plainEvery = 3 * time.Second

func (l *live) progress(s demo.Progress) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.term {
		if time.Since(l.last) >= plainEvery {
			l.last = time.Now()
			fmt.Fprintln(l.out, progressLine(s))
		}
		return
	}
	if l.bar == nil {
		l.bar = progressbar.NewOptions(s.Payments, progressbar.OptionSetWriter(l.out), progressbar.OptionClearOnFinish(),
			progressbar.OptionSetWidth(24), progressbar.OptionThrottle(50*time.Millisecond), progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(false))
	}
	l.bar.Describe(fmt.Sprintf("%-10s %3.0f s  %d charged, %d unknown, %d killed ", s.Phase, s.Elapsed.Seconds(), s.Succeeded, s.Unknown, s.Killed))
	_ = l.bar.Set(min(s.Ended, s.Payments-1)) // a bar that cannot be drawn is no reason to stop
}

func progressLine(s demo.Progress) string {
	return fmt.Sprintf("%5.1f s  %s: %d of %d published, %d of %d ended (%d charged, %d declined, %d rejected, %d in review), %d unknown, %d killed",
		s.Elapsed.Seconds(), s.Phase, s.Published, s.Of, s.Ended, s.Payments, s.Succeeded, s.Declined, s.Rejected, s.InReview, s.Unknown, s.Killed)
}

func (l *live) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bar != nil {
		_ = l.bar.Clear()
		l.bar = nil
	}
}

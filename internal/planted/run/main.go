// Command run plants the bugs of package planted, one at a time, in a copy of the
// tree, and checks that each is caught. `make planted` calls it.
//
//	go run ./internal/planted/run [flags] [name or guarantee ...]
//
// Exit code 1 when a bug slips through, 2 when the bugs cannot be planted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/settleonce/settleonce/internal/planted"
)

func main() {
	opts := options{}
	flag.StringVar(&opts.revision, "rev", "", "plant in this commit instead of the files as they lie")
	flag.StringVar(&opts.only, "only", "", "run only these catchers: torture, model or test")
	flag.BoolVar(&opts.verbose, "v", false, "show what a catcher printed when it missed")
	docs := flag.String("docs", "", "write the list of bugs to this file, and plant nothing")
	flag.Parse()
	if *docs != "" {
		if err := os.WriteFile(*docs, []byte(planted.Page()), 0o644); err != nil { //nolint:gosec // a page of the documentation
			fail(err)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	missed, err := plantAll(ctx, opts, flag.Args())
	stop()
	if err != nil {
		fail(err)
	}
	if missed > 0 {
		fmt.Printf("%d bugs were missed\n", missed)
		os.Exit(1)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "planted:", err)
	os.Exit(2)
}

type options struct {
	revision, only string
	verbose        bool
}

// chosen are the bugs with these names or guarantees; all when there are none.
func chosen(names []string) ([]planted.Bug, error) {
	if len(names) == 0 {
		return planted.Bugs(), nil
	}
	var out []planted.Bug
	for _, name := range names {
		before := len(out)
		for _, b := range planted.Bugs() {
			if b.Name == name || b.Guarantee == name {
				out = append(out, b)
			}
		}
		if len(out) == before {
			return nil, fmt.Errorf("there is no planted bug %q: see docs/planted.md", name)
		}
	}
	return out, nil
}

func plantAll(ctx context.Context, opts options, names []string) (missed int, err error) {
	bugs, err := chosen(names)
	if err != nil {
		return 0, err
	}
	t, err := copyTree(ctx, opts.revision)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, t.remove()) }()
	t.verbose = opts.verbose
	begun := time.Now()
	for i := range bugs {
		b := &bugs[i]
		for _, c := range catchersOf(b) {
			if opts.only != "" && opts.only != c.kind {
				continue
			}
			if ctx.Err() != nil {
				return missed, fmt.Errorf("interrupted: %w", ctx.Err())
			}
			started := time.Now()
			verdict, err := t.try(ctx, b, c)
			if err != nil {
				return missed, err
			}
			if !verdict.caught {
				missed++
			}
			fmt.Printf("%-30s %-4s %-8s %-6s %4.0f s  %s\n", b.Name, b.Guarantee, c.kind, verdict.word(), time.Since(started).Seconds(), verdict.why)
		}
	}
	fmt.Printf("%d bugs in %.0f s\n", len(bugs), time.Since(begun).Seconds())
	return missed, nil
}

// verdict is whether a bug was caught, and by what.
type verdict struct {
	caught bool
	why    string
}

func (v verdict) word() string {
	if v.caught {
		return "caught"
	}
	return "MISSED"
}

func guarantees(b *planted.Bug) []string { return slices.Concat([]string{b.Guarantee}, b.Shows) }

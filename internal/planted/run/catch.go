package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/settleonce/settleonce/internal/planted"
)

// catcher is one way to catch a bug.
type catcher struct {
	kind string
	run  func(context.Context, *tree, *planted.Bug) (verdict, error)
}

func catchersOf(b *planted.Bug) (out []catcher) {
	if b.Torture != "" {
		out = append(out, catcher{"torture", torture})
	}
	if b.Model != "" {
		out = append(out, catcher{"model", model})
	}
	if b.Test != "" {
		out = append(out, catcher{"test", test})
	}
	return out
}

const (
	buildLimit   = 10 * time.Minute
	tortureLimit = 6 * time.Minute
	modelLimit   = 10 * time.Minute
	testLimit    = 6 * time.Minute
)

// report is what `settleonce torture -o json` prints, as far as it matters here.
type report struct {
	Violations []struct {
		Guarantee string `json:"guarantee"`
		Text      string `json:"text"`
	} `json:"violations"`
	Unsettled []string `json:"unsettled"`
	Kept      string   `json:"kept"`
}

// torture builds the program with the bug and breaks everything around it. The
// report must name the guarantee: a run that fails otherwise has not caught it.
func torture(ctx context.Context, t *tree, b *planted.Bug) (verdict, error) {
	built, err := t.command(ctx, buildLimit, "go", "build", "-trimpath", "-o", "bin/settleonce", "./cmd/settleonce")
	if err != nil {
		return verdict{}, err
	}
	if built.code != 0 {
		return verdict{why: "it does not compile: " + built.both}, nil
	}
	args := []string{"torture", "-o", "json", "--patience", "45s"} // what a bug keeps from settling need not be waited for; later flags win
	out, err := t.command(ctx, tortureLimit, "bin/settleonce", append(args, strings.Fields(b.Torture)...)...)
	if err != nil {
		return verdict{}, err
	}
	r, told := readReport(out.stdout)
	if !told {
		t.show(out.both)
		return verdict{why: fmt.Sprintf("no report, exit code %d", out.code)}, nil
	}
	if r.Kept != "" {
		if err := os.RemoveAll(r.Kept); err != nil {
			return verdict{}, fmt.Errorf("remove what the run kept: %w", err)
		}
	}
	return judge(t, b, r, out), nil
}

func readReport(text string) (r report, told bool) {
	told = json.Unmarshal([]byte(text), &r) == nil
	return r, told
}

func judge(t *tree, b *planted.Bug, r report, out output) verdict {
	counts := map[string]int{}
	example := ""
	for _, v := range r.Violations {
		counts[v.Guarantee]++
		if example == "" && slices.Contains(guarantees(b), v.Guarantee) {
			example = v.Guarantee + ": " + v.Text
		}
	}
	if example == "" {
		t.show(out.both)
		return verdict{why: fmt.Sprintf("violations %v, %d unsettled", counts, len(r.Unsettled))}
	}
	return verdict{caught: true, why: fmt.Sprintf("%v, as %.140s", counts, example)}
}

var broken = regexp.MustCompile(`G\d+_\w+`)

// model checks the protocol with the same rule left out. Where that is one of two,
// it must hold with only the other one left out.
func model(ctx context.Context, t *tree, b *planted.Bug) (verdict, error) {
	if b.Other != "" {
		result, err := checked(ctx, t, b.Other)
		if err != nil || result != b.Other+": holds" {
			return verdict{why: result}, err
		}
	}
	result, err := checked(ctx, t, b.Model)
	return verdict{caught: broken.MatchString(result), why: result}, err
}

// checked is what a check of the model comes to, in one line.
func checked(ctx context.Context, t *tree, check string) (string, error) {
	out, err := t.command(ctx, modelLimit, "model/run", append([]string{"-only"}, strings.Fields(check)...)...)
	if err != nil {
		return "", err
	}
	first, _, _ := strings.Cut(out.stdout, "\n")
	if !broken.MatchString(first) {
		t.show(out.both)
	}
	return first, nil
}

var failed = regexp.MustCompile(`--- FAIL: (\w+)`)

// test runs tests with the bug; one of those named must fail, not just not build
// or not end.
func test(ctx context.Context, t *tree, b *planted.Bug) (verdict, error) {
	args := append([]string{"test", "-count=1", "-short=false", "-timeout", "3m"}, strings.Fields(b.Test)...)
	out, err := t.command(ctx, testLimit, "go", args...)
	if err != nil {
		return verdict{}, err
	}
	if name := failed.FindStringSubmatch(out.both); name != nil {
		return verdict{caught: true, why: name[1]}, nil
	}
	t.show(out.both)
	return verdict{why: fmt.Sprintf("exit code %d, and no test failed", out.code)}, nil
}

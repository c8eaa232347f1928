package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fieldCase is one line of cases.md.
type fieldCase struct {
	id   string
	also string // a second test of the case has this word in its name; empty for none
}

var (
	caseLine = regexp.MustCompile(`(?m)^\| ([PB]\d+) \| [^|\n]+ \| ([a-z]*) ?\|$`)
	// A test is named after its case, and so is a subtest.
	caseTest    = regexp.MustCompile(`^Test([PB]\d+)[a-z]?_`)
	caseSubtest = regexp.MustCompile(`^([PB]\d+)[a-z]?(: |_)\w`)
)

func readCases(t *testing.T) []fieldCase {
	t.Helper()
	var cases []fieldCase
	for _, match := range caseLine.FindAllStringSubmatch(read(t, "cases.md"), -1) {
		cases = append(cases, fieldCase{id: match[1], also: match[2]})
	}
	return cases
}

func TestCasesAreAllThere(t *testing.T) {
	t.Parallel()
	var want, got []string
	for i := range 35 {
		want = append(want, fmt.Sprintf("P%d", i+1))
	}
	for i := range 21 {
		want = append(want, fmt.Sprintf("B%d", i+1))
	}
	for _, c := range readCases(t) {
		got = append(got, c.id)
	}
	require.Equal(t, want, got)
}

func TestEveryCaseHasItsTest(t *testing.T) {
	t.Parallel()
	tests := caseTests(t)
	require.Empty(t, owed(readCases(t), tests), "cases without a test of their name")
	for _, c := range readCases(t) {
		t.Logf("%-4s %-10s %s", c.id, c.also, strings.Join(tests[c.id], ", "))
	}
}

// The check finds what is missing.
func TestOwedCases(t *testing.T) {
	t.Parallel()
	cases := []fieldCase{{id: "P1"}, {id: "P3", also: "edge"}}
	require.Equal(t, []string{"P1", "P3"}, owed(cases, nil))
	one := map[string][]string{"P1": {"TestP1_Any"}, "P3": {"TestP3_Any"}}
	require.Equal(t, []string{"P3 (edge)"}, owed(cases, one))
	one["P3"] = []string{"TestP3_Any", "TestP3_EdgeToo"}
	require.Empty(t, owed(cases, one))

	tests := caseTests(t)
	require.Subset(t, tests["B7"], []string{"B7_MovedPartition"}, "subtests of the conformance suite count")
	require.Subset(t, tests["P26"], []string{"TestP26b_FinalizerHeldBeforeCommit"}, "so do parts of a case")
}

// owed are the cases without a test.
func owed(cases []fieldCase, tests map[string][]string) []string {
	var missing []string
	for _, c := range cases {
		named := func(name string) bool { return strings.Contains(strings.ToLower(name), c.also) }
		switch {
		case len(tests[c.id]) == 0:
			missing = append(missing, c.id)
		case !slices.ContainsFunc(tests[c.id], named):
			missing = append(missing, c.id+" ("+c.also+")")
		}
	}
	return missing
}

// caseTests are the tests and subtests of the repository by their case.
func caseTests(t *testing.T) map[string][]string {
	t.Helper()
	tests := map[string][]string{}
	for _, path := range goFiles(t) {
		if strings.HasSuffix(path, "_test.go") || filepath.Base(filepath.Dir(path)) == "kafkatest" {
			require.NoError(t, addCaseTests(tests, path))
		}
	}
	return tests
}

func addCaseTests(tests map[string][]string, path string) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("parse test: %w", err)
	}
	ast.Inspect(file, func(node ast.Node) bool {
		name, pattern := "", caseSubtest
		switch n := node.(type) {
		case *ast.FuncDecl:
			name, pattern = n.Name.Name, caseTest
		case *ast.BasicLit:
			name, _ = strconv.Unquote(n.Value)
		}
		if match := pattern.FindStringSubmatch(name); match != nil {
			tests[match[1]] = append(tests[match[1]], name)
		}
		return true
	})
	return nil
}

package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
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
	part string // what it waits for; empty for nothing
	more bool   // it is due already, and the part owes one more test
}

var (
	caseLine = regexp.MustCompile(`(?m)^\| ([PB]\d+) \| [^|\n]+ \| (\+ )?([a-z]*) ?\|$`)
	partLine = regexp.MustCompile("(?m)^\\| ([a-z]+) \\| (`[^|\n]+`) \\|$")
	// A test is named after its case, and so is a subtest.
	caseTest    = regexp.MustCompile(`^Test([PB]\d+)[a-z]?_`)
	caseSubtest = regexp.MustCompile(`^([PB]\d+)[a-z]?(: |_)\w`)
)

func readCases(t *testing.T) []fieldCase {
	t.Helper()
	var cases []fieldCase
	for _, match := range caseLine.FindAllStringSubmatch(read(t, "cases.md"), -1) {
		cases = append(cases, fieldCase{id: match[1], more: match[2] != "", part: match[3]})
	}
	return cases
}

// readParts returns each part's patterns of what exists with it.
func readParts(t *testing.T) map[string][]string {
	t.Helper()
	parts := map[string][]string{}
	for _, match := range partLine.FindAllStringSubmatch(read(t, "cases.md"), -1) {
		for _, pattern := range quoted.FindAllStringSubmatch(match[2], -1) {
			parts[match[1]] = append(parts[match[1]], pattern[1])
		}
	}
	return parts
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
	parts := readParts(t)
	for _, c := range readCases(t) {
		got = append(got, c.id)
		require.True(t, c.part == "" || parts[c.part] != nil, "%s waits for %q, which is no part of the page", c.id, c.part)
		require.False(t, c.more && c.part == "", c.id)
	}
	require.Equal(t, want, got)
}

// TestEveryDueCaseHasItsTest: a case is due unless the part it waits for is not
// there yet.
func TestEveryDueCaseHasItsTest(t *testing.T) {
	t.Parallel()
	tests := caseTests(t, "..")
	standing := standingParts(t, "..", readParts(t))
	require.Empty(t, owed(readCases(t), standing, tests), "cases without a test of their name")
	for _, c := range readCases(t) {
		t.Logf("%-4s %-10s %s", c.id, c.part, strings.Join(tests[c.id], ", "))
	}
}

// The check finds what is missing, and what became due.
func TestOwedCases(t *testing.T) {
	t.Parallel()
	cases := []fieldCase{{id: "P1"}, {id: "P2", part: "edge"}, {id: "P3", part: "edge", more: true}}
	one := map[string][]string{"P1": {"TestP1_Any"}, "P3": {"TestP3_Any"}}
	require.Empty(t, owed(cases, nil, one))
	require.Equal(t, []string{"P1", "P3"}, owed(cases, nil, nil))
	edge := map[string]bool{"edge": true}
	require.Equal(t, []string{"P2", "P3 (edge)"}, owed(cases, edge, one))
	one["P2"], one["P3"] = []string{"TestP2_Any"}, []string{"TestP3_Any", "TestP3_EdgeToo"}
	require.Empty(t, owed(cases, edge, one))

	standing := standingParts(t, "..", map[string][]string{"here": {"no/such*", "docs/cases*"}, "not": {"no/such*"}})
	require.Equal(t, map[string]bool{"here": true}, standing)
	require.Subset(t, caseTests(t, "..")["B7"], []string{"B7_MovedPartition"}, "subtests of the conformance suite count")
	require.Subset(t, caseTests(t, "..")["P26"], []string{"TestP26b_FinalizerHeldBeforeCommit"}, "so do parts of a case")
}

// owed are the due cases without a test.
func owed(cases []fieldCase, standing map[string]bool, tests map[string][]string) []string {
	var missing []string
	for _, c := range cases {
		due := c.part == "" || c.more || standing[c.part]
		switch {
		case due && len(tests[c.id]) == 0:
			missing = append(missing, c.id)
		case c.more && standing[c.part] && !slices.ContainsFunc(tests[c.id], func(name string) bool {
			return strings.Contains(strings.ToLower(name), c.part)
		}):
			missing = append(missing, c.id+" ("+c.part+")")
		}
	}
	return missing
}

func standingParts(t *testing.T, root string, parts map[string][]string) map[string]bool {
	t.Helper()
	standing := map[string]bool{}
	for part, patterns := range parts {
		for _, pattern := range patterns {
			found, err := filepath.Glob(filepath.Join(root, pattern))
			require.NoError(t, err)
			if len(found) > 0 {
				standing[part] = true
			}
		}
	}
	return standing
}

// caseTests are the tests and subtests of the repository by their case.
func caseTests(t *testing.T, root string) map[string][]string {
	t.Helper()
	tests := map[string][]string{}
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "bin", "testdata", "node_modules", "docs"}, entry.Name()):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go") && filepath.Base(filepath.Dir(path)) != "kafkatest":
			return nil
		}
		return addCaseTests(tests, path)
	}))
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

package planted_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/leaktest"
	"github.com/settleonce/settleonce/internal/planted"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", file))
	require.NoError(t, err)
	return string(text)
}

// TestBugsFitTheCode: every text that a bug replaces is still there, once, and in
// the guard that it is said to be in. Otherwise the list would rot in silence.
func TestBugsFitTheCode(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, b := range planted.Bugs() {
		t.Run(b.Name, func(t *testing.T) {
			t.Parallel()
			files := withBug(t, &b)
			require.Contains(t, span(t, b.File, b.Guard), b.Old, "%s is not in %s", b.Name, b.Guard)
			require.NotEqual(t, b.Old, b.New)
			for file, text := range files {
				_, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
				require.NoError(t, err, "%s does not parse", file)
			}
		})
		require.False(t, names[b.Name], "%s is there twice", b.Name)
		names[b.Name] = true
		require.True(t, b.Torture != "" || b.Model != "" || b.Test != "", "nothing catches %s", b.Name)
		require.Regexp(t, `^G\d+$`, b.Guarantee)
		require.Equal(t, b.Torture == "" && b.Model == "", b.Why != "", "say why only a test catches %s, and only then", b.Name)
	}
}

// withBug are the files that a bug changes, as they are with it.
func withBug(t *testing.T, b *planted.Bug) map[string]string {
	t.Helper()
	files := map[string]string{}
	require.NoError(t, b.Apply(
		func(file string) (string, error) {
			if text, changed := files[file]; changed {
				return text, nil
			}
			return read(t, file), nil
		},
		func(file, text string) error { files[file] = text; return nil },
	))
	return files
}

// span is the source of a declaration: a function, a method as Type.Method, or a
// group of constants or variables that declares the name.
func span(t *testing.T, file, name string) string {
	t.Helper()
	text := read(t, file)
	parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
	require.NoError(t, err)
	for _, d := range parsed.Decls {
		if slices.Contains(names(d), name) {
			return text[d.Pos()-1 : d.End()-1]
		}
	}
	require.Fail(t, "no such guard", "%s declares no %s", file, name)
	return ""
}

func names(decl ast.Decl) (out []string) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		name := d.Name.Name
		if d.Recv != nil {
			receiver := d.Recv.List[0].Type
			if star, ok := receiver.(*ast.StarExpr); ok {
				receiver = star.X
			}
			if ident, ok := receiver.(*ast.Ident); ok {
				name = ident.Name + "." + name
			}
		}
		return []string{name}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if v, ok := spec.(*ast.ValueSpec); ok {
				for _, n := range v.Names {
					out = append(out, n.Name)
				}
			}
		}
	}
	return out
}

var quoted = regexp.MustCompile("`([^`\n]+)`")

// TestEveryGuardHasABug: what docs/guarantees.md calls a guard is taken out by a
// bug, or it says why not.
func TestEveryGuardHasABug(t *testing.T) {
	t.Parallel()
	has := map[string]bool{}
	for _, b := range planted.Bugs() {
		has[b.File+" "+b.Guard] = true
	}
	exempt, guarantees := planted.Exempt(), map[string]bool{}
	for _, b := range planted.Bugs() {
		guarantees[b.Guarantee] = true
	}
	sections := strings.Split(read(t, "docs/guarantees.md"), "\n## ")
	named := map[string]bool{}
	for _, section := range sections[1:] {
		title, _, _ := strings.Cut(section, " ")
		require.True(t, guarantees[title], "no bug breaks %s", title)
		for _, guard := range enforcedIn(section) {
			named[guard] = true
			require.True(t, has[guard] || exempt[guard] != "",
				"%s names %s: plant a bug there (internal/planted), or say why none can be", title, guard)
		}
	}
	for guard := range exempt {
		require.True(t, named[guard], "%s is exempt and no guard of docs/guarantees.md", guard)
	}
}

// enforcedIn are the guards of a section, as "file name".
func enforcedIn(section string) (guards []string) {
	_, rest, _ := strings.Cut(section, "\n- Enforced in: ")
	text, _, _ := strings.Cut(rest, "\n- ")
	file := ""
	for _, match := range quoted.FindAllStringSubmatch(text, -1) {
		if strings.HasSuffix(match[1], ".go") {
			file = match[1]
			continue
		}
		guards = append(guards, file+" "+match[1])
	}
	return guards
}

var modelCheck = regexp.MustCompile(`(?m)^(\w+) +(?:ci|full) +(G\d+_\w+|holds) *(.*)$`)

// TestModelChecksAreRun: the checks that bugs refer to are among those that `make
// model` runs, and break a guarantee there.
func TestModelChecksAreRun(t *testing.T) {
	t.Parallel()
	expected := map[string]string{}
	for _, m := range modelCheck.FindAllStringSubmatch(read(t, "model/checks.txt"), -1) {
		expected[strings.TrimSpace(m[1]+" "+m[3])] = m[2]
	}
	for _, b := range planted.Bugs() {
		if b.Model != "" {
			require.Regexp(t, `^G\d+_`, expected[b.Model], "%s: model/checks.txt has no failing check %q", b.Name, b.Model)
		}
		if b.Other != "" {
			require.Equal(t, "holds", expected[b.Other], "%s: model/checks.txt has no check %q that holds", b.Name, b.Other)
			require.True(t, strings.HasPrefix(b.Model, b.Other+" "), "%s: %q must leave out one rule more than %q", b.Name, b.Model, b.Other)
		}
	}
}

var testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)

// TestNamedTestsExist: every alternative of a pattern is a test of that package.
func TestNamedTestsExist(t *testing.T) {
	t.Parallel()
	for _, b := range planted.Bugs() {
		if b.Test == "" {
			continue
		}
		folder, pattern, found := strings.Cut(b.Test, " -run ")
		require.True(t, found, b.Name)
		tests := testsOf(t, folder)
		for alternative := range strings.SplitSeq(pattern, "|") {
			wanted := regexp.MustCompile(alternative)
			require.True(t, slices.ContainsFunc(tests, wanted.MatchString), "%s: %s has no test %s", b.Name, folder, alternative)
		}
	}
}

func testsOf(t *testing.T, folder string) (tests []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", folder, "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range testFunction.FindAllStringSubmatch(string(text), -1) {
			tests = append(tests, m[1])
		}
	}
	return tests
}

// TestPageIsFresh: docs/planted.md is what the list says.
func TestPageIsFresh(t *testing.T) {
	t.Parallel()
	require.Equal(t, planted.Page(), read(t, "docs/planted.md"), "docs/planted.md is not what the list says: run go generate ./internal/planted")
}

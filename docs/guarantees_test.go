package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A proof is a list item that names files, and after each file names of it.
const (
	enforced = "- Enforced in: "
	shown    = "- Shown by: "
)

func TestGuaranteesNameWhatExists(t *testing.T) {
	t.Parallel()
	sections := strings.Split(read(t, "guarantees.md"), "\n## ")
	require.Len(t, sections, 17, "an introduction and G1 to G16")
	for i, section := range sections {
		if i > 0 {
			require.True(t, strings.HasPrefix(section, fmt.Sprintf("G%d ", i)), "section %d begins with %.20q", i, section)
			require.Contains(t, section, "\n- Not promised: ", "G%d", i)
		}
		requireNames(t, item(t, section, enforced), false)
		requireNames(t, item(t, section, shown), true)
	}
}

// item is the text of the list item that begins with the words.
func item(t *testing.T, section, words string) string {
	t.Helper()
	_, rest, found := strings.Cut(section, "\n"+words)
	require.True(t, found, "%.20q has no %q", section, words)
	text, _, _ := strings.Cut(rest, "\n- ")
	text, _, _ = strings.Cut(text, "\n\n")
	return text
}

// requireNames reads `file` `name`, `name`; `file` `name` and looks each up.
// tests says that the names must be run by go test.
func requireNames(t *testing.T, text string, tests bool) {
	t.Helper()
	var file string
	var declared map[string]bool
	names := 0
	for _, match := range quoted.FindAllStringSubmatch(text, -1) {
		if strings.HasSuffix(match[1], ".go") {
			file, declared = match[1], declarations(t, match[1])
			continue
		}
		require.NotEmpty(t, file, "%q comes before any file", match[1])
		require.True(t, declared[match[1]], "%s declares no %s", file, match[1])
		if tests {
			suite := strings.Contains(file, "kafkatest/") && strings.HasPrefix(match[1], "check")
			require.True(t, suite || strings.HasPrefix(match[1], "Test"), "%s is no test", match[1])
		}
		names++
	}
	require.NotZero(t, names, "%q names nothing", text)
}

// declarations are the functions, methods (as Type.Method), types, constants and
// variables of a file.
func declarations(t *testing.T, file string) map[string]bool {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", file), nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	declared := map[string]bool{}
	for _, declaration := range parsed.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			declared[receiver(d)+d.Name.Name] = true
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					declared[s.Name.Name] = true
				case *ast.ValueSpec:
					for _, name := range s.Names {
						declared[name.Name] = true
					}
				}
			}
		}
	}
	return declared
}

// receiver is "Type." for a method and "" for a function.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	kind := d.Recv.List[0].Type
	if pointer, ok := kind.(*ast.StarExpr); ok {
		kind = pointer.X
	}
	if name, ok := kind.(*ast.Ident); ok {
		return name.Name + "."
	}
	return ""
}

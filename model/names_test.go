package model_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// place is how the models name code: a file and a name declared in it.
var place = regexp.MustCompile(`([a-z]+(?:/[a-z_]+)*/[a-z_]+\.go) ([A-Za-z]\w*)`)

var point = regexp.MustCompile(`crashpoint\.([A-Z]\w*)`)

// TestPlacesExist: every function that a model or the page about them names is
// still there, under that name, in that file.
func TestPlacesExist(t *testing.T) {
	t.Parallel()
	points := declared(t, "internal/crashpoint/crashpoint.go")
	for _, file := range append(models(t), "../docs/model.md") {
		text := read(t, file)
		places := place.FindAllStringSubmatch(text, -1)
		require.NotEmpty(t, places, "%s names no code", file)
		for _, p := range places {
			require.Contains(t, declared(t, p[1]), p[2], "%s names %s", file, p[0])
		}
		for _, p := range point.FindAllStringSubmatch(text, -1) {
			require.Contains(t, points, p[1], "%s names %s", file, p[0])
		}
	}
}

var (
	switchLine = regexp.MustCompile(`(?m)^#ifndef (\w+)`)
	checkLine  = regexp.MustCompile(`(?m)^(\w+) +(ci|full) +(\w+) *(.*)$`)
)

// TestEveryRuleIsLeftOut: a rule that no check leaves out is not shown to be
// needed, and a switch that no check sets is not checked at all.
func TestEveryRuleIsLeftOut(t *testing.T) {
	t.Parallel()
	used := make(map[string]string)
	for _, check := range checkLine.FindAllStringSubmatch(read(t, "checks.txt"), -1) {
		used[check[1]] += " " + check[4] + " "
	}
	for _, file := range models(t) {
		name := strings.TrimSuffix(file, ".pml")
		require.NotEmpty(t, used[name], "%s is not checked", file)
		for _, s := range switchLine.FindAllStringSubmatch(read(t, file), -1) {
			if s[1] == "N" {
				continue // a size
			}
			require.Regexp(t, `-D`+s[1]+`(=\d+)? `, used[name], "no check of %s sets %s", file, s[1])
		}
	}
}

func models(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*.pml")
	require.NoError(t, err)
	require.Len(t, files, 7)
	return files
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}

// declared are the names that a file of the repository declares: functions,
// methods, types, constants and variables.
func declared(t *testing.T, file string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", file), nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	var names []string
	for _, decl := range parsed.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			names = append(names, d.Name.Name)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				names = append(names, namesOf(spec)...)
			}
		}
	}
	return names
}

func namesOf(spec ast.Spec) []string {
	switch s := spec.(type) {
	case *ast.TypeSpec:
		return []string{s.Name.Name}
	case *ast.ValueSpec:
		out := make([]string, len(s.Names))
		for i, n := range s.Names {
			out[i] = n.Name
		}
		return out
	default:
		return nil
	}
}

package planted_test

import (
	"bufio"
	"bytes"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/planted"
)

// compiled are the packages of the tree and all that they import, as the compiler
// left them, by import path.
type compiled map[string]compiledPackage

type compiledPackage struct {
	export, folder string
	files          []string
}

// module is the import path of the tree.
const module = "github.com/settleonce/settleonce"

func compile(t *testing.T) compiled {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-f", `{{.ImportPath}} {{.Export}} {{.Dir}} {{join .GoFiles ","}}`, "./...")
	list.Dir = filepath.Join("..", "..")
	var told bytes.Buffer
	list.Stderr = &told
	out, err := list.Output()
	require.NoError(t, err, told.String())
	all := compiled{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		if f := strings.Split(lines.Text(), " "); len(f) == 4 {
			all[f[0]] = compiledPackage{export: f[1], folder: f[2], files: strings.Split(f[3], ",")}
		}
	}
	return all
}

// check compiles one package, with files as they would be with a bug.
func (c compiled) check(path string, changed map[string]string) error {
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range c[path].files {
		var source any // nil: as it lies
		if text, ok := changed[name]; ok {
			source = text
		}
		file, err := parser.ParseFile(fset, filepath.Join(c[path].folder, name), source, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	lookup := func(path string) (io.ReadCloser, error) { return os.Open(c[path].export) }
	_, err := (&types.Config{Importer: importer.ForCompiler(fset, "gc", lookup)}).Check(path, fset, files, nil)
	return err
}

// TestBugsCompile: code that is planted compiles. A bug that does not is not caught
// by anything, and the code around it changes.
func TestBugsCompile(t *testing.T) {
	t.Parallel()
	all := compile(t)
	for _, b := range planted.Bugs() {
		t.Run(b.Name, func(t *testing.T) {
			t.Parallel()
			packages := map[string]map[string]string{} // import path, name of the file
			for file, text := range withBug(t, &b) {
				path := module + "/" + filepath.Dir(file)
				if packages[path] == nil {
					packages[path] = map[string]string{}
				}
				packages[path][filepath.Base(file)] = text
			}
			for path, changed := range packages {
				require.NotEmpty(t, all[path].files, path)
				require.NoError(t, all.check(path, changed), path)
			}
		})
	}
}

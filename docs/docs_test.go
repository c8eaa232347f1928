package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/settleonce/settleonce/schemas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// read returns a page by its path from here.
func read(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	return string(text)
}

// An example is a golden payload: <!-- golden: v1/KIND.json -->, then the block.
var example = regexp.MustCompile("(?s)<!-- golden: (\\S+) -->\n```json\n(.*?)\n```")

func TestExamplesAreGoldenPayloads(t *testing.T) {
	t.Parallel()
	page := read(t, "messages.md")
	shows := example.FindAllStringSubmatch(page, -1)
	require.Len(t, shows, strings.Count(page, "```json"), "an example without its golden file: write <!-- golden: v1/NAME.json --> above it")
	shown := map[string]bool{}
	for _, match := range shows {
		golden, err := schemas.Golden.ReadFile("golden/" + match[1])
		require.NoError(t, err)
		require.Equal(t, strings.TrimRight(string(golden), "\n"), match[2], "%s: copy it to the page", match[1])
		kind, _, _ := strings.Cut(filepath.Base(match[1]), ".")
		shown[kind] = true
	}
	for _, kind := range schemas.Kinds() {
		if kind != schemas.Headers {
			require.True(t, shown[string(kind)], "no example of %s", kind)
		}
	}
}

var (
	constants = regexp.MustCompile(`(?m)^\t(?:Event|Reply|Code|Dead)\w+ +(?:EventType|ReplyKind|Code|DeadLetterReason) += "([^"]+)"`)
	quoted    = regexp.MustCompile("`([^`\n]+)`")
)

func TestEveryCodeOfAMessageIsExplained(t *testing.T) {
	t.Parallel()
	explained := found(quoted, read(t, "messages.md"))
	codes := constants.FindAllStringSubmatch(read(t, "../payment/message.go"), -1)
	require.Greater(t, len(codes), 25, "message.go is written in another way: adapt the pattern")
	for _, code := range codes {
		require.True(t, explained[code[1]], "%s is not on the page", code[1])
	}
}

// found are the texts that the pattern's group matched in a page.
func found(pattern *regexp.Regexp, page string) map[string]bool {
	texts := map[string]bool{}
	for _, match := range pattern.FindAllStringSubmatch(page, -1) {
		texts[match[1]] = true
	}
	return texts
}

// A link is ](target), to a file of the repository or to a heading.
var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("*.md")
	require.NoError(t, err)
	pages = append(pages, "../README.md", "../CONTRIBUTING.md")
	for _, page := range pages {
		for _, match := range link.FindAllStringSubmatch(read(t, page), -1) {
			file, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(file, "://") {
				continue
			}
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), file)
				require.FileExists(t, existing(target), "%s links to %s", page, match[1])
			}
			if anchor != "" {
				require.Contains(t, anchors(read(t, target)), anchor, "%s links to %s", page, match[1])
			}
		}
	}
}

// runbook is a link of an alert to a heading of these pages.
var runbook = regexp.MustCompile(`runbook_url: \S+/docs/(\w+\.md)#(\S+)`)

func TestRunbooksOfAlertsAreThere(t *testing.T) {
	t.Parallel()
	links := runbook.FindAllStringSubmatch(read(t, "../deploy/prometheus/alerts.yml"), -1)
	require.NotEmpty(t, links)
	for _, match := range links {
		require.Contains(t, anchors(read(t, match[1])), match[2])
	}
}

// existing is a file that stands for the target: a folder needs no more than to
// be there.
func existing(target string) string {
	if info, err := os.Stat(target); err == nil && info.IsDir() {
		return "doc.go"
	}
	return target
}

// anchors are the names that headings have on GitHub.
func anchors(page string) []string {
	var names []string
	for line := range strings.Lines(page) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			kept := strings.Map(func(r rune) rune {
				if strings.ContainsRune("`,.:()*", r) {
					return -1
				}
				return r
			}, strings.ToLower(strings.TrimSpace(title)))
			names = append(names, strings.ReplaceAll(kept, " ", "-"))
		}
	}
	return slices.Compact(names)
}

// The picture of the code is whole: each package, or the one it belongs to, and
// each table has its line.
func TestEverythingIsOnTheMap(t *testing.T) {
	t.Parallel()
	named := found(quoted, read(t, "architecture.md"))
	for _, path := range goFiles(t) {
		folder := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "../")
		require.True(t, named[folder] || named[filepath.ToSlash(filepath.Dir(folder))], "%s is not on the page", folder)
	}
	migrations, err := filepath.Glob("../schemas/migrations/*.sql")
	require.NoError(t, err)
	require.NotEmpty(t, migrations)
	for _, migration := range migrations {
		for _, match := range table.FindAllStringSubmatch(read(t, migration), -1) {
			require.True(t, named[match[1]], "table %s of %s is not on the page", match[1], migration)
		}
	}
}

// goFiles are the Go files of the repository but for those of this folder.
func goFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	require.NoError(t, filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", ".settleonce", "bin", "testdata", "node_modules", "docs"}, entry.Name()):
			return filepath.SkipDir
		case strings.HasSuffix(path, ".go"):
			files = append(files, path)
		}
		return nil
	}))
	return files
}

var table = regexp.MustCompile(`CREATE TABLE settleonce\.(\w+)`)

// Every page can be found from the README.
func TestPagesAreLinkedFromTheReadme(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("*.md")
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	linked := found(link, read(t, "../README.md"))
	for _, page := range pages {
		require.True(t, linked["docs/"+page], "link %s in the README", page)
	}
}

// A name with a folder that a page gives in backticks is there.
func TestFilesThatPagesNameAreThere(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("*.md")
	require.NoError(t, err)
	for _, page := range append(pages, "../README.md", "../CONTRIBUTING.md") {
		for path := range found(namedFile, read(t, page)) {
			require.FileExists(t, filepath.Join("..", path), "%s names %s", page, path)
		}
	}
}

var namedFile = regexp.MustCompile("`((?:\\w+/)+[\\w.-]+\\.(?:go|yml|yaml|json|md|sql|pml|txt))`")

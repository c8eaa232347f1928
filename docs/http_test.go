package docs_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	edgeCode     = regexp.MustCompile(`(?m)^\tCode\w+ +Code = "([A-Z_]+)"`)
	borrowedCode = regexp.MustCompile(`(?m)^\tCode\w+ +Code = Code\(payment\.(\w+)\)`)
	shellBlock   = regexp.MustCompile("(?m)^```sh$")
	runMarker    = regexp.MustCompile(`(?m)^<!-- run: \d{3} .*-->$|^<!-- run: \d{3} -->$`)
)

// Every code of the HTTP edge is in the table of the page.
func TestEveryCodeOfTheEdgeIsExplained(t *testing.T) {
	t.Parallel()
	page, source, messages := read(t, "http.md"), read(t, "../producer/edge/problem.go"), read(t, "../payment/message.go")
	own, borrowed := edgeCode.FindAllStringSubmatch(source, -1), borrowedCode.FindAllStringSubmatch(source, -1)
	require.Greater(t, len(own), 15, "problem.go is written in another way: adapt the pattern")
	require.Greater(t, len(borrowed), 5, "problem.go is written in another way: adapt the pattern")
	codes := make([]string, 0, len(own)+len(borrowed))
	for _, match := range own {
		codes = append(codes, match[1])
	}
	for _, match := range borrowed {
		value := regexp.MustCompile(match[1] + ` +Code = "([A-Z_]+)"`).FindStringSubmatch(messages)
		require.NotNil(t, value, match[1])
		codes = append(codes, value[1])
	}
	for _, code := range codes {
		require.Contains(t, page, "| `"+code+"` | ", code)
	}
}

// Every shell block of the page says what comes of it: a test runs them.
func TestEveryLineOfHTTPIsRun(t *testing.T) {
	t.Parallel()
	page := read(t, "http.md")
	require.Len(t, runMarker.FindAllString(page, -1), len(shellBlock.FindAllString(page, -1)))
	require.Equal(t, strings.Count(page, "```sh\n"), strings.Count(page, "-->\n```sh\n"))
}

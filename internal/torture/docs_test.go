package torture

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every fault is described, each in the table.
func TestFaults_AreDescribed(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/torture.md")
	require.NoError(t, err)
	var names strings.Builder
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "| `") {
			names.WriteString(strings.Split(line, "|")[1])
		}
	}
	for _, f := range Faults() {
		require.Contains(t, names.String(), "`"+string(f)+"`")
	}
}

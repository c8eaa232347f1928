package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/pgtest"
)

var (
	shellBlock = regexp.MustCompile("(?s)```sh\n(.*?)```")
	shellWord  = regexp.MustCompile(`'([^']*)'|(\S+)`)
)

// pageCommands are the command lines of a page, as words.
func pageCommands(t *testing.T, page string) [][]string {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	var out [][]string
	for _, block := range shellBlock.FindAllStringSubmatch(string(text), -1) {
		for line := range strings.Lines(block[1]) {
			var words []string
			for _, word := range shellWord.FindAllStringSubmatch(line, -1) {
				words = append(words, word[1]+word[2])
			}
			if len(words) == 0 {
				continue
			}
			require.Equal(t, "settleonce", words[0])
			out = append(out, words[1:])
		}
	}
	return out
}

const pagePayments = `pay_id,request_id,order_no,amount,status,charge,created
1,8e03978e-40d5-43e8-bc93-6894a57f9324,o-1,19.99,paid,ch_1,2026-01-02 10:00:00
2,c4f6d1ab-5a0f-4c58-9f43-0a4a3ad1b7e5,o-2,5,failed,,2026-01-02 10:01:00
3,legacy-3,o-3,7.5,paid,ch_3,2026-01-02 10:02:00
4,,o-4,8,open,,2026-01-02 10:03:00
`

// Every command of docs/adoption.md does what the page says, in its order.
func TestAdoptionPage(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.Schema)
	legacy := legacyTable(t)
	folder := t.TempDir()
	path := filepath.Join(folder, "payments.csv")
	require.NoError(t, os.WriteFile(path, []byte(pagePayments), 0o600))
	places := strings.NewReplacer("payments.csv", path, "not-taken.jsonl", filepath.Join(folder, "not-taken.jsonl"),
		"postgres://reader@legacy:5432/shop", legacy)
	wants := []string{
		"would be taken  4      2 succeeded, 1 declined, 1 without an outcome", "would be taken  3",
		"taken        4      2 succeeded, 1 declined, 1 without an outcome", "everything was there already: nothing changed", "imported from payments.csv",
	}
	commands := pageCommands(t, "../../docs/adoption.md")
	require.Len(t, commands, len(wants))
	for i, words := range commands {
		for j := range words {
			words[j] = places.Replace(words[j])
		}
		r := runCommand(t, []string{"SETTLEONCE_POSTGRES_DSN=" + pool.Config().ConnString()}, words...)
		requireOK(t, r)
		require.Contains(t, r.stdout, wants[i])
	}
	var rows int
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM settleonce.payments`).Scan(&rows))
	require.Equal(t, 4, rows)
}

// legacyTable is the table of the page, in a database of its own.
func legacyTable(t *testing.T) string {
	t.Helper()
	pool := pgtest.New(t, nil)
	_, err := pool.Exec(t.Context(), `CREATE TABLE pay (id bigint PRIMARY KEY, order_no text, cents int, status text);
		INSERT INTO pay VALUES (1, 'o-1', 1999, 'paid'), (2, 'o-2', 500, 'failed'), (3, 'o-3', 800, 'open')`)
	require.NoError(t, err)
	return pool.Config().ConnString()
}

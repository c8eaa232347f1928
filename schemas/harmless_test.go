package schemas_test

import (
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/schemas"
)

// Every migration after the first runs on tables in use: each of its statements is of a kind that is known
// to hold no long lock, and that the binaries of the release before can live with.
func TestMigrationsHoldNoLongLock(t *testing.T) {
	t.Parallel()
	files, err := schemas.Files()
	require.NoError(t, err)
	names, err := fs.Glob(files, "*.sql")
	require.NoError(t, err)
	slices.Sort(names)
	var existing []string
	for i, name := range names {
		text, err := fs.ReadFile(files, name)
		require.NoError(t, err)
		if i > 0 {
			require.Empty(t, harm(string(text), existing), name)
		}
		existing = append(existing, created(string(text))...)
	}
	require.Contains(t, existing, "payments")
}

func TestMigrationsThatHoldLongLocksAreFound(t *testing.T) {
	t.Parallel()
	outside := "-- +goose NO TRANSACTION\n"
	for text, problem := range map[string]string{
		"ALTER TABLE settleonce.payments ADD COLUMN a text":                                                       "",
		"ALTER TABLE settleonce.payments ADD COLUMN a bigint NOT NULL DEFAULT 1, ADD COLUMN IF NOT EXISTS b text": "",
		"CREATE TABLE settleonce.n (id int REFERENCES settleonce.m (id)); CREATE INDEX i ON settleonce.n (id)":    "",
		"ALTER TABLE settleonce.payments ADD CONSTRAINT c CHECK (amount > 0) NOT VALID":                           "",
		"ALTER TABLE settleonce.payments VALIDATE CONSTRAINT c":                                                   "",
		"ALTER TABLE settleonce.payments SET (fillfactor = 60)":                                                   "",
		"UPDATE settleonce.installation SET oldest_binary = 9; ALTER TABLE settleonce.payments DROP COLUMN a":     "",
		outside + "CREATE INDEX CONCURRENTLY IF NOT EXISTS i ON settleonce.payments (state)":                      "",

		"ALTER TABLE settleonce.payments ADD COLUMN a uuid DEFAULT gen_random_uuid()":                                                          "default",
		"ALTER TABLE settleonce.payments ADD COLUMN a timestamptz DEFAULT clock_timestamp()":                                                   "default",
		"ALTER TABLE settleonce.payments ADD COLUMN a int CHECK (a > 0)":                                                                       "constraint",
		"ALTER TABLE settleonce.payments ADD COLUMN a int REFERENCES settleonce.deliveries (id)":                                               "constraint",
		"ALTER TABLE settleonce.payments ADD COLUMN a int GENERATED ALWAYS AS (amount) STORED":                                                 "constraint",
		"ALTER TABLE settleonce.payments ALTER COLUMN amount TYPE numeric":                                                                     "not known",
		"ALTER TABLE settleonce.payments ALTER amount TYPE numeric":                                                                            "not known",
		"ALTER TABLE settleonce.payments ALTER COLUMN detail SET NOT NULL":                                                                     "not known",
		"ALTER TABLE settleonce.payments ADD CONSTRAINT c CHECK (amount > 0)":                                                                  "NOT VALID",
		"ALTER TABLE settleonce.payments ADD CONSTRAINT c CHECK (a > 0) NOT VALID; ALTER TABLE settleonce.payments VALIDATE CONSTRAINT c":      "file of its own",
		"ALTER TABLE settleonce.payments DROP COLUMN detail":                                                                                   "oldest_binary",
		"ALTER TABLE settleonce.payments RENAME TO paid":                                                                                       "oldest_binary",
		"DROP TABLE settleonce.payments":                                                                                                       "oldest_binary",
		"CREATE INDEX i ON settleonce.payments (state)":                                                                                        "CONCURRENTLY",
		"CREATE UNIQUE INDEX i ON settleonce.payments (state)":                                                                                 "CONCURRENTLY",
		"CREATE INDEX CONCURRENTLY IF NOT EXISTS i ON settleonce.payments (state)":                                                             "NO TRANSACTION",
		outside + "CREATE INDEX CONCURRENTLY i ON settleonce.payments (state)":                                                                 "IF NOT EXISTS",
		outside + "CREATE INDEX CONCURRENTLY IF NOT EXISTS i ON settleonce.payments (state); ALTER TABLE settleonce.payments ADD COLUMN a int": "only",
		"CREATE TABLE settleonce.n (id uuid REFERENCES settleonce.payments (id))":                                                              "REFERENCES",
		"UPDATE settleonce.payments SET cause = ''":                                                                                            "not known",
		"LOCK TABLE settleonce.payments":                                                                                                       "not known",
		"CREATE TRIGGER t BEFORE INSERT ON settleonce.payments EXECUTE FUNCTION f()":                                                           "not known",
		"VACUUM FULL settleonce.payments":                                                                                                      "not known",
	} {
		up, isOutside := strings.CutPrefix(text, outside)
		file := "-- +goose Up\n" + up + ";\n-- +goose Down\nDROP TABLE settleonce.payments;"
		if isOutside {
			file = outside + file
		}
		found := harm(file, []string{"payments", "deliveries", "installation"})
		if problem == "" {
			require.Empty(t, found, text)
		} else {
			require.Contains(t, strings.Join(found, "\n"), problem, text)
		}
	}
}

var (
	comment      = regexp.MustCompile(`--[^\n]*`)
	literal      = regexp.MustCompile(`'[^']*'`)
	createTable  = regexp.MustCompile(`(?i)^CREATE TABLE (?:IF NOT EXISTS )?settleonce\.(\w+)`)
	createIndex  = regexp.MustCompile(`(?i)^CREATE (?:UNIQUE )?INDEX (CONCURRENTLY )?(IF NOT EXISTS )?(\w*) ?ON (?:ONLY )?settleonce\.(\w+)`)
	dropIndex    = regexp.MustCompile(`(?i)^DROP INDEX (CONCURRENTLY )?IF EXISTS `)
	alterTable   = regexp.MustCompile(`(?i)^ALTER TABLE (?:IF EXISTS )?(?:ONLY )?settleonce\.(\w+) (.*)$`)
	dropTable    = regexp.MustCompile(`(?i)^DROP TABLE (?:IF EXISTS )?settleonce\.(\w+)`)
	ownRows      = regexp.MustCompile(`(?i)^(?:INSERT INTO|UPDATE|DELETE FROM) settleonce\.(\w+)`)
	raisesOldest = regexp.MustCompile(`(?i)UPDATE settleonce\.installation SET oldest_binary`)
	references   = regexp.MustCompile(`(?i)REFERENCES settleonce\.(\w+)`)
	defaultCall  = regexp.MustCompile(`(?i)DEFAULT [^,]*\(`)
	constraining = regexp.MustCompile(`(?i)\b(CHECK|REFERENCES|UNIQUE|PRIMARY KEY|GENERATED)\b`)
	//nolint:dupword // It is a pattern.
	harmlessAlter = regexp.MustCompile(`(?i)^(SET \(|RESET \(|VALIDATE CONSTRAINT|DROP CONSTRAINT|ALTER (COLUMN )?\w+ (SET DEFAULT|DROP DEFAULT|DROP NOT NULL|SET STATISTICS))`)
	breakingAlter = regexp.MustCompile(`(?i)^(DROP (COLUMN )?|RENAME )`)
)

// statements are those of the way up, on one line each, without comments and literals.
func statements(text string) []string {
	up, _, _ := strings.Cut(text, "-- +goose Down")
	up = literal.ReplaceAllString(comment.ReplaceAllString(up, ""), "''")
	var out []string
	for statement := range strings.SplitSeq(up, ";") {
		if s := strings.Join(strings.Fields(statement), " "); s != "" {
			out = append(out, s)
		}
	}
	return out
}

func created(text string) []string {
	var out []string
	for _, s := range statements(text) {
		if m := createTable.FindStringSubmatch(s); m != nil {
			out = append(out, m[1])
		}
	}
	return out
}

// harm lists what is wrong with a migration, given the tables that earlier ones made.
func harm(text string, existing []string) []string {
	f := judged{
		outside: strings.Contains(text, "+goose NO TRANSACTION"), all: strings.Join(statements(text), "; "), existing: existing,
	}
	for _, s := range statements(text) {
		if problem := f.problem(s); problem != "" {
			f.problems = append(f.problems, problem+": "+s)
		}
	}
	return f.problems
}

type judged struct {
	outside  bool
	all      string
	existing []string
	problems []string
}

func (f *judged) inUse(table string) bool { return slices.Contains(f.existing, table) }

func (f *judged) problem(s string) string {
	if f.outside {
		return f.outsideProblem(s)
	}
	if m := createTable.FindStringSubmatch(s); m != nil {
		return f.referencesProblem(s)
	}
	if m := createIndex.FindStringSubmatch(s); m != nil {
		return f.indexProblem(m)
	}
	if m := alterTable.FindStringSubmatch(s); m != nil {
		return f.alterProblem(m[1], m[2])
	}
	if m := dropTable.FindStringSubmatch(s); m != nil {
		return f.breaking()
	}
	if m := ownRows.FindStringSubmatch(s); m != nil && (!f.inUse(m[1]) || m[1] == "installation") {
		return ""
	}
	return "a statement that is not known to be harmless"
}

func (f *judged) outsideProblem(s string) string {
	m := createIndex.FindStringSubmatch(s)
	d := dropIndex.FindStringSubmatch(s)
	switch {
	case m == nil && d == nil:
		return "a NO TRANSACTION file holds only indexes, since a part of it may be done"
	case d != nil && d[1] == "", m != nil && m[1] == "":
		return "say CONCURRENTLY"
	case m != nil && m[2] == "" && !strings.Contains(f.all, "DROP INDEX CONCURRENTLY IF EXISTS settleonce."+m[3]):
		return "say IF NOT EXISTS, or drop it first, since the file may be run again"
	default:
		return ""
	}
}

func (f *judged) referencesProblem(s string) string {
	for _, m := range references.FindAllStringSubmatch(s, -1) {
		if f.inUse(m[1]) {
			return "REFERENCES locks the table it names"
		}
	}
	return ""
}

func (f *judged) indexProblem(m []string) string {
	switch {
	case m[1] != "":
		return "CONCURRENTLY needs a file with NO TRANSACTION"
	case f.inUse(m[4]):
		return "an index of a table in use is built CONCURRENTLY"
	default:
		return ""
	}
}

func (f *judged) breaking() string {
	if raisesOldest.MatchString(f.all) {
		return ""
	}
	return "older binaries cannot live with it: raise installation.oldest_binary"
}

func (f *judged) alterProblem(table, actions string) string {
	if !f.inUse(table) {
		return ""
	}
	for _, action := range splitActions(actions) {
		if problem := f.actionProblem(action); problem != "" {
			return problem
		}
	}
	return ""
}

func (f *judged) actionProblem(action string) string {
	upper := strings.ToUpper(action)
	switch {
	case strings.HasPrefix(upper, "ADD CONSTRAINT"):
		if !strings.HasSuffix(upper, "NOT VALID") {
			return "add the constraint NOT VALID, and VALIDATE it in a later file"
		}
		return ""
	case strings.HasPrefix(upper, "ADD "):
		return addProblem(action)
	case strings.HasPrefix(upper, "VALIDATE") && strings.Contains(strings.ToUpper(f.all), "NOT VALID"):
		return "VALIDATE belongs into a file of its own: it would hold the lock of the constraint"
	case harmlessAlter.MatchString(action):
		return ""
	case breakingAlter.MatchString(action):
		return f.breaking()
	default:
		return "a change of a table that is not known to be harmless"
	}
}

func addProblem(action string) string {
	switch {
	case constraining.MatchString(action):
		return "a new column with a constraint is checked row by row"
	case defaultCall.MatchString(action):
		return "a default that is computed rewrites the table"
	default:
		return ""
	}
}

// splitActions splits at commas outside of brackets.
func splitActions(actions string) []string {
	var out []string
	depth, start := 0, 0
	for i, r := range actions {
		switch r {
		case '(':
			depth++
		case ')':
			depth--
		case ',':
			if depth == 0 {
				out = append(out, strings.TrimSpace(actions[start:i]))
				start = i + 1
			}
		}
	}
	return append(out, strings.TrimSpace(actions[start:]))
}

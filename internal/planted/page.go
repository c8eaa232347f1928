package planted

import (
	"fmt"
	"slices"
	"strings"
)

//go:generate go run ./run -docs ../../docs/planted.md

// Page is docs/planted.md: every bug, with what catches it, and the guards that
// have none.
func Page() string {
	var b strings.Builder
	b.WriteString(head)
	b.WriteString(summary())
	b.WriteString(table)
	for _, bug := range Bugs() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | `%s` `%s` | %s |\n", bug.Name, bug.Guarantee, bug.What, bug.File, bug.Guard, strings.Join(caughtBy(&bug), "; "))
	}
	b.WriteString(tail)
	var guards []string
	for guard := range exempt {
		guards = append(guards, guard)
	}
	slices.Sort(guards)
	for _, guard := range guards {
		file, name, _ := strings.Cut(guard, " ")
		fmt.Fprintf(&b, "- `%s` `%s`: %s.\n", file, name, exempt[guard])
	}
	return b.String()
}

const head = `# Planted bugs

<!-- Written by ` + "`go generate ./internal/planted`" + `: change the list there. -->

A net that was never seen to catch anything proves nothing. Each line is one guard of [the guarantees](guarantees.md) taken out of the code, and
what notices: a torture run with these flags, a check of [the model](model.md) with the same rule left out, or a test. ` + "`make planted`" + ` plants each
bug in a copy of the tree, alone, and fails when one is missed; ` + "`make planted BUG=name`" + ` plants one, ` + "`BUG=G5`" + ` those of a guarantee. A torture run
must report the guarantee itself (or one that the same bug breaks visibly), a test must fail, not just not build. The model checks the rule, not
the code; that the code has the rule is what the test or the run beside it shows.

`

const table = `
| bug | breaks | what the code does then | guard | caught by |
|---|---|---|---|---|
`

const tail = `
## Guards without a bug

`

// summary counts the bugs by what catches them.
func summary() string {
	all := Bugs()
	var torture, model, both int
	for _, b := range all {
		torture += counted(b.Torture != "")
		model += counted(b.Model != "")
		both += counted(b.Torture != "" && b.Model != "")
	}
	return fmt.Sprintf("Of %d bugs a torture run catches %d, the model %d, and both %d. %s\n\n%s", len(all), torture, model, both,
		tested(all, len(all)-torture-model+both), paired(all))
}

func counted(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// tested names the bugs that only a test catches, under the reason.
func tested(all []Bug, n int) string {
	if n == 0 {
		return "None is shown by a test only."
	}
	alone, reasons := map[string][]string{}, []string{}
	for _, b := range all {
		if b.Why != "" && alone[b.Why] == nil {
			reasons = append(reasons, b.Why)
		}
		if b.Why != "" {
			alone[b.Why] = append(alone[b.Why], "`"+b.Name+"`")
		}
	}
	var s strings.Builder
	fmt.Fprintf(&s, "Shown by a test only: %d.\n", n)
	for _, why := range reasons {
		fmt.Fprintf(&s, "\n- %s: %s.", why, strings.Join(alone[why], ", "))
	}
	return s.String()
}

// paired names the guards that are one of two.
func paired(all []Bug) string {
	var pairs []string
	for _, b := range all {
		if b.Other != "" {
			pairs = append(pairs, "`"+b.Name+"`")
		}
	}
	return fmt.Sprintf("%d of those of the model are one of two guards, either of which suffices ([the pairs](model.md#guards-of-which-one-suffices)):\n%s.\n"+
		"Alone they break nothing. So the model leaves out the other one, and holds by this one; then both, and fails.\n",
		len(pairs), strings.Join(pairs, ", "))
}

// caughtBy names the catchers of a bug.
func caughtBy(b *Bug) []string {
	var out []string
	if b.Torture != "" {
		out = append(out, "`settleonce torture "+b.Torture+"`")
	}
	switch {
	case b.Other != "":
		out = append(out, "model `"+b.Model+"`, where `"+b.Other+"` holds")
	case b.Model != "":
		out = append(out, "model `"+b.Model+"`")
	}
	if b.Test != "" {
		out = append(out, "test `"+strings.ReplaceAll(b.Test, "|", "` `")+"`")
	}
	return out
}

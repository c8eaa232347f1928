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

// summary counts the bugs by what catches them, and names those that only a test
// does, under the reason.
func summary() string {
	var all, torture, model, both int
	var pairs []string
	alone, reasons := map[string][]string{}, []string{}
	for _, b := range Bugs() {
		all++
		if b.Other != "" {
			pairs = append(pairs, "`"+b.Name+"`")
		}
		switch {
		case b.Torture != "" && b.Model != "":
			both++
		case b.Torture != "":
			torture++
		case b.Model != "":
			model++
		default:
			if alone[b.Why] == nil {
				reasons = append(reasons, b.Why)
			}
			alone[b.Why] = append(alone[b.Why], "`"+b.Name+"`")
		}
	}
	var s strings.Builder
	fmt.Fprintf(&s, "Of %d bugs a torture run catches %d, the model %d, and both %d. %d of those of the model are one of two guards, either of which suffices\n"+
		"(%s): alone they break nothing, so the model leaves out the other one, and holds by this one; then both, and fails.\n\n",
		all, torture+both, model+both, both, len(pairs), strings.Join(pairs, ", "))
	if len(reasons) == 0 {
		return s.String()
	}
	fmt.Fprintf(&s, "%d are shown by a test only:\n\n", all-torture-model-both)
	for _, why := range reasons {
		fmt.Fprintf(&s, "- %s: %s.\n", why, strings.Join(alone[why], ", "))
	}
	return s.String()
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

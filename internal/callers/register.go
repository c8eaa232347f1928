package callers

import "context"

// Rules are what settings say about callers, whoever they are.
type Rules struct {
	// Carries reports whether a command topic may carry a caller's commands.
	Carries func(topic, caller string) bool
	// Named reports whether a namespace is set to "repay: named" (G15).
	Named func(namespace string) bool
}

// Register is what a consumer asks where the table of callers is the truth. It
// answers from the Directory's copy, whatever its age: a consumer reads the table
// again before it refuses anybody by it, and each claim compares with the table
// itself (store.Batch.CheckCallers).
type Register struct {
	directory *Directory
	rules     Rules
}

// NewRegister returns a Register over the directory.
func NewRegister(d *Directory, rules Rules) *Register { return &Register{directory: d, rules: rules} }

// May reports whether the caller is known and not shut out, and the topic is its
// to write (G12).
func (r *Register) May(topic, caller string) bool {
	c, ok := r.directory.Find(caller)
	return ok && !c.Revoked && r.rules.Carries(topic, caller)
}

// Namespace returns the namespace of the caller's obligations, and whether it is
// set to "repay: named".
func (r *Register) Namespace(caller string) (name string, repayNamed bool) {
	name = caller
	if c, ok := r.directory.Find(caller); ok {
		name = c.Namespace
	}
	return name, r.rules.Named(name)
}

// Refresh reads the table.
func (r *Register) Refresh(ctx context.Context) error { return r.directory.Refresh(ctx) }

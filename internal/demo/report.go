package demo

import "github.com/settleonce/settleonce/internal/check"

// Report is what a demo came to.
type Report struct {
	check.Verdict

	Broker string `json:"broker"`
	Seed   uint64 `json:"seed"`
	// Payments is how many of the keys came by themselves and ought to be claimed; the
	// others follow from those, or are nonsense.
	Payments  int            `json:"payments"`
	Processes int            `json:"processesPerRole"`
	Killed    map[string]int `json:"killed"`
	// Crashed are processes that ended by themselves, which none should.
	Crashed []string `json:"endedByThemselves,omitempty"`
	// Disturbed says that more was broken than processes killed: then they may end
	// by themselves.
	Disturbed bool `json:"disturbed,omitempty"`
	// Unsettled is what was still awaited when patience ended.
	Unsettled []string `json:"unsettled,omitempty"`
	// PublishSeconds and SettleSeconds are the time for publishing, and from the
	// last command until all was settled; Seconds is the whole run.
	PublishSeconds float64 `json:"publishSeconds"`
	SettleSeconds  float64 `json:"settleSeconds"`
	Seconds        float64 `json:"seconds"`
	QueryBudget    string  `json:"queryBudget"`
	// Requests count what single requests at the HTTP edge came to, by status.
	Requests map[string]int `json:"requestsAtTheEdge,omitempty"`
	// Kept is the folder of data and logs, where they were kept.
	Kept string `json:"kept,omitempty"`
}

// Passed reports whether the run is a proof: every guarantee held, everything was
// settled, and no process ended by itself.
func (r Report) Passed() bool {
	return r.Holds() && len(r.Unsettled) == 0 && (r.Disturbed || len(r.Crashed) == 0)
}

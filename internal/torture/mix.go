package torture

// mix is what a channel can do, as the simulator behaves and as the workers are
// told.
type mix struct {
	name string
	// behaviour is added to the simulator's, as JSON without braces.
	behaviour string
	workers   []string
	// review says that what was perhaps sent may have to wait for a person.
	review bool
}

const notIdempotent = `"idempotentSubmit":false,"pinsFailures":false`

// mixes are the capabilities that decide how the unknown is resolved.
var mixes = []mix{
	{"idempotent, failures pinned, lookup at once", `"idempotentSubmit":true`, nil, false},
	{"failures not pinned", `"pinsFailures":false`, []string{"SETTLEONCE_CHANNEL_PINS_FAILURES=false"}, false},
	{"lookup lags by a second", `"visibilityLag":"1s"`, []string{"SETTLEONCE_CHANNEL_VISIBILITY_LAG=1s"}, false},
	{"not found is no proof", `"notFoundIsProof":false`, []string{"SETTLEONCE_CHANNEL_NOT_FOUND_IS_PROOF=false"}, true},
	{"not idempotent, with lookup", notIdempotent, []string{
		"SETTLEONCE_CHANNEL_IDEMPOTENT_SUBMIT=false", "SETTLEONCE_CHANNEL_PINS_FAILURES=false",
	}, true},
	{"failures not pinned, lookup lags, not found is no proof", `"pinsFailures":false,"visibilityLag":"700ms","notFoundIsProof":false`, []string{
		"SETTLEONCE_CHANNEL_PINS_FAILURES=false", "SETTLEONCE_CHANNEL_VISIBILITY_LAG=700ms", "SETTLEONCE_CHANNEL_NOT_FOUND_IS_PROOF=false",
	}, true},
	{"idempotent, without lookup", `"query":false,"notFoundIsProof":false`, []string{
		"SETTLEONCE_CHANNEL_QUERY=false", "SETTLEONCE_CHANNEL_NOT_FOUND_IS_PROOF=false",
	}, true},
	{"neither idempotent nor lookup", notIdempotent + `,"query":false,"notFoundIsProof":false`, []string{
		"SETTLEONCE_CHANNEL_IDEMPOTENT_SUBMIT=false", "SETTLEONCE_CHANNEL_PINS_FAILURES=false",
		"SETTLEONCE_CHANNEL_QUERY=false", "SETTLEONCE_CHANNEL_NOT_FOUND_IS_PROOF=false",
	}, true},
}

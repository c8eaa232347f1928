package schemas

import (
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/settleonce/settleonce/payment"
)

// describe lists the innermost errors with where they are, in a fixed order.
func describe(broken *jsonschema.ValidationError) string {
	places := innermost(nil, broken)
	slices.Sort(places)
	return strings.Join(slices.Compact(places), "; ")
}

func innermost(places []string, e *jsonschema.ValidationError) []string {
	if len(e.Causes) == 0 {
		place := payment.CleanText(strings.Join(e.InstanceLocation, "."), 200)
		if place == "" {
			place = "the value"
		}
		return append(places, place+" "+sentence(e.ErrorKind))
	}
	for _, cause := range e.Causes {
		places = innermost(places, cause)
	}
	return places
}

// sentence says what is wrong at one place. It does not use the library's own
// sentences, because they quote the value, which may be a secret.
func sentence(broken jsonschema.ErrorKind) string {
	switch k := broken.(type) {
	case *kind.Required:
		return "lacks " + strings.Join(k.Missing, ", ")
	case *kind.Type:
		return "must be of type " + strings.Join(k.Want, " or ") + ", not " + k.Got
	case *kind.MinLength:
		return fmt.Sprintf("must have at least %d characters", k.Want)
	case *kind.MaxLength:
		return fmt.Sprintf("must have at most %d characters", k.Want)
	case *kind.MaxProperties:
		return fmt.Sprintf("must have at most %d entries", k.Want)
	case *kind.Minimum:
		return "must be at least " + k.Want.RatString()
	case *kind.Maximum:
		return "must be at most " + k.Want.RatString()
	case *kind.Pattern:
		return "does not have the form its schema describes"
	case *kind.Format:
		return "is not a valid " + k.Want
	case *kind.Enum, *kind.Const, *kind.Not:
		return "is not one of the values its schema allows"
	case *kind.FalseSchema:
		return "must not be there"
	default:
		return "breaks the rule " + strings.Join(broken.KeywordPath(), "/") + " of its schema"
	}
}

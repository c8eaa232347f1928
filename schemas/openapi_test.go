package schemas_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/settleonce/settleonce/payment"
	"github.com/settleonce/settleonce/schemas"
)

// openAPI is the document as it is now.
func openAPI(t *testing.T) map[string]any {
	t.Helper()
	text, err := schemas.OpenAPI()
	require.NoError(t, err)
	var document map[string]any
	require.NoError(t, json.Unmarshal(text, &document))
	return document
}

// published is the document as clients know it. After a release it is replaced by
// a copy of openapi.yaml, which may only have added to it.
func published(t *testing.T) map[string]any {
	t.Helper()
	text, err := os.ReadFile("testdata/openapi/published.yaml")
	require.NoError(t, err)
	var document map[string]any
	require.NoError(t, yaml.Unmarshal(text, &document))
	text, err = json.Marshal(document)
	require.NoError(t, err)
	document = nil
	require.NoError(t, json.Unmarshal(text, &document))
	return document
}

func TestOpenAPIOnlyGrows(t *testing.T) {
	t.Parallel()
	require.Empty(t, breaks("", published(t), openAPI(t)),
		"clients rely on what was published: add, and leave the rest as it is")
}

// What would break a client is found, and what would not is let through.
func TestBreakingChangesAreFound(t *testing.T) {
	t.Parallel()
	schemasOf := func(d map[string]any) map[string]any { return dig(d, "components", "schemas") }
	operation := func(d map[string]any) map[string]any { return dig(d, "paths", "/v1/payments", "post") }
	for name, test := range map[string]struct {
		change func(d map[string]any)
		breaks string
	}{
		"a path goes":       {func(d map[string]any) { delete(dig(d, "paths"), "/v1/payments/{key}") }, "is gone"},
		"an operation goes": {func(d map[string]any) { delete(dig(d, "paths", "/v1/payments"), "get") }, "is gone"},
		"a status goes":     {func(d map[string]any) { delete(dig(operation(d), "responses"), "202") }, "is gone"},
		"a field goes":      {func(d map[string]any) { delete(dig(schemasOf(d), "Payment", "properties"), "state") }, "is gone"},
		"a field is optional now": {func(d map[string]any) {
			dig(schemasOf(d), "Payment")["required"] = []any{"paymentId"}
		}, "changed"},
		"a field is needed now": {func(d map[string]any) {
			s := dig(schemasOf(d), "PaymentRequest")
			s["required"] = append(listOf(s, "required"), "issuedAt")
		}, "changed"},
		"a type changes": {func(d map[string]any) { dig(schemasOf(d), "Payment", "properties", "amount")["type"] = "string" }, "changed"},
		"a limit comes":  {func(d map[string]any) { dig(schemasOf(d), "Payment", "properties", "cause")["maxLength"] = 9 }, "is a new constraint"},
		"a state goes":   {func(d map[string]any) { dig(schemasOf(d), "State")["enum"] = []any{"pending"} }, "is gone"},
		"a header is needed": {func(d map[string]any) {
			o := operation(d)
			o["parameters"] = append(listOf(o, "parameters"), map[string]any{"name": "X-New", "in": "header", "required": true})
		}, "is needed"},
		"security changes": {func(d map[string]any) { d["security"] = []any{} }, "changed"},

		"a field comes": {func(d map[string]any) {
			dig(schemasOf(d), "Payment", "properties")["fee"] = map[string]any{"type": "integer"}
		}, ""},
		"a path comes":   {func(d map[string]any) { dig(d, "paths")["/v1/refunds"] = map[string]any{} }, ""},
		"a status comes": {func(d map[string]any) { dig(operation(d), "responses")["410"] = map[string]any{} }, ""},
		"a state comes": {func(d map[string]any) {
			s := dig(schemasOf(d), "State")
			s["enum"] = append(listOf(s, "enum"), "refunded")
		}, ""},
		"a parameter comes": {func(d map[string]any) {
			o := operation(d)
			o["parameters"] = append(listOf(o, "parameters"), map[string]any{"name": "X-New"})
		}, ""},
		"a sentence changes": {func(d map[string]any) { operation(d)["summary"] = "another" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before, after := published(t), published(t)
			test.change(after)
			found := breaks("", before, after)
			if test.breaks == "" {
				require.Empty(t, found)
				return
			}
			require.NotEmpty(t, found)
			require.Contains(t, found[0], test.breaks)
		})
	}
}

func listOf(o map[string]any, name string) []any {
	list, _ := o[name].([]any)
	return list
}

func dig(o map[string]any, names ...string) map[string]any {
	for _, name := range names {
		o, _ = o[name].(map[string]any)
	}
	return o
}

// prose are the members that tell nothing to programs.
var prose = []string{"description", "summary", "title", "example", "examples", "info", "tags"}

// constraints are the members whose coming forbids what was allowed.
var constraints = []string{
	"type", "format", "pattern", "minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems", "minProperties",
	"maxProperties", "propertyNames", "additionalProperties", "enum", "const", "not", "required", "allOf", "oneOf", "anyOf", "$ref",
}

// breaks lists what a client of the old document cannot rely on any more. Only
// additions are let through, so it may find more than would break anybody.
func breaks(at string, before, after any) []string {
	switch old := before.(type) {
	case map[string]any:
		now, ok := after.(map[string]any)
		if !ok {
			return []string{at + " changed"}
		}
		return breaksOfObject(at, old, now)
	case []any:
		now, ok := after.([]any)
		if !ok {
			return []string{at + " changed"}
		}
		return breaksOfList(at, old, now)
	default:
		if fmt.Sprint(before) != fmt.Sprint(after) {
			return []string{at + " changed"}
		}
		return nil
	}
}

func breaksOfObject(at string, old, now map[string]any) []string {
	var found []string
	names := strings.HasSuffix(at, "/properties") || strings.HasSuffix(at, "/schemas") // of fields, not of keywords
	for _, name := range slices.Sorted(maps.Keys(old)) {
		value, ok := now[name]
		switch {
		case !names && slices.Contains(prose, name):
		case !ok:
			found = append(found, at+"/"+name+" is gone")
		default:
			found = append(found, breaks(at+"/"+name, old[name], value)...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if _, ok := old[name]; !ok && !names && slices.Contains(constraints, name) {
			found = append(found, at+"/"+name+" is a new constraint")
		}
	}
	return found
}

func breaksOfList(at string, old, now []any) []string {
	var found []string
	switch {
	case strings.HasSuffix(at, "/enum") || strings.HasSuffix(at, "/parameters"):
		for _, item := range old {
			if !contains(now, item) {
				found = append(found, fmt.Sprintf("%s: %v is gone", at, item))
			}
		}
		for _, item := range now {
			if parameter, ok := item.(map[string]any); ok && parameter["required"] == true && !contains(old, item) {
				found = append(found, fmt.Sprintf("%s: %v is needed", at, parameter["name"]))
			}
		}
	case len(old) != len(now) || len(slices.Collect(missing(old, now))) > 0:
		found = append(found, at+" changed")
	}
	return found
}

func missing(old, now []any) func(func(any) bool) {
	return func(yield func(any) bool) {
		for _, item := range old {
			if !contains(now, item) && !yield(item) {
				return
			}
		}
	}
}

// contains compares without prose.
func contains(list []any, wanted any) bool {
	return slices.ContainsFunc(list, func(item any) bool {
		return len(breaks("", wanted, item))+len(breaks("", item, wanted)) == 0
	})
}

// Every schema of the document compiles, its references lead somewhere, and its
// own examples are valid.
func TestOpenAPISchemas(t *testing.T) {
	t.Parallel()
	text, err := schemas.OpenAPI()
	require.NoError(t, err)
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	require.NoError(t, compiler.AddResource("https://settleonce.test/openapi.json", document))
	root := openAPI(t)
	for name, schema := range dig(root, "components", "schemas") {
		compiled, err := compiler.Compile("https://settleonce.test/openapi.json#/components/schemas/" + name)
		require.NoError(t, err, name)
		fields, _ := schema.(map[string]any)
		examples, _ := fields["examples"].([]any)
		for _, example := range examples {
			require.NoError(t, compiled.Validate(example), name)
		}
	}
	refs := 0
	walk(root, func(o map[string]any) {
		ref, ok := o["$ref"].(string)
		if !ok {
			return
		}
		refs++
		require.NotNil(t, dig(root, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...), ref)
	})
	require.Greater(t, refs, 50)
}

func walk(value any, see func(map[string]any)) {
	switch v := value.(type) {
	case map[string]any:
		see(v)
		for _, inner := range v {
			walk(inner, see)
		}
	case []any:
		for _, inner := range v {
			walk(inner, see)
		}
	}
}

// A request of the document is a command without what the edge adds: the same
// fields, with the same rules.
func TestOpenAPIRequestIsACommand(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("command.json")
	require.NoError(t, err)
	var command map[string]any
	require.NoError(t, json.Unmarshal(text, &command))
	request := dig(openAPI(t), "components", "schemas", "PaymentRequest")
	require.ElementsMatch(t, slices.Collect(maps.Keys(dig(command, "properties"))), slices.Collect(maps.Keys(dig(request, "properties"))))
	text1 := dig(openAPI(t), "components", "schemas", "Text")
	for _, name := range []string{"minLength", "maxLength", "pattern"} {
		require.Equal(t, dig(command, "properties", "orderId")[name], text1[name], name)
	}
	require.Equal(t, dig(command, "properties", "issuedAt")["pattern"], dig(request, "properties", "issuedAt")["pattern"])
	require.Equal(t, dig(command, "properties", "caller")["pattern"], dig(openAPI(t), "components", "schemas", "Name")["pattern"])
	require.EqualValues(t, payment.MaxAmount, dig(request, "properties", "amount")["maximum"])
}

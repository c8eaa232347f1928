package openapitest

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/settleonce/settleonce/schemas"
)

// where is the address that the document has for the schema compiler.
const where = "https://settleonce.test/openapi.json"

// document is the OpenAPI document, and its schemas as they are needed.
type document struct {
	root     object
	compiler *jsonschema.Compiler
	compiled map[string]*jsonschema.Schema
}

type object = map[string]any

func load() (*document, error) {
	text, err := schemas.OpenAPI()
	if err != nil {
		return nil, err
	}
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("parse the document: %w", err)
	}
	root, _ := parsed.(object)
	shut(root)
	d := &document{root: root, compiler: jsonschema.NewCompiler(), compiled: map[string]*jsonschema.Schema{}}
	d.compiler.AssertFormat()
	return d, d.compiler.AddResource(where, root)
}

// shut makes the objects of answers closed: here, an undocumented field is a
// fault, while clients must ignore what they do not know.
func shut(root object) {
	for _, schema := range at(root, "components", "schemas") {
		s, _ := schema.(object)
		if _, open := s["additionalProperties"]; s["properties"] != nil && !open {
			s["additionalProperties"] = false
		}
	}
}

// at walks down by names.
func at(o object, names ...string) object {
	for _, name := range names {
		o, _ = o[name].(object)
	}
	return o
}

// resolve follows a $ref and says where it leads.
func (d *document) resolve(o object, pointer string) (object, string) {
	ref, ok := o["$ref"].(string)
	if !ok {
		return o, pointer
	}
	pointer = strings.TrimPrefix(ref, "#")
	return at(d.root, strings.Split(strings.TrimPrefix(pointer, "/"), "/")...), pointer
}

// check holds a value against the schema at a pointer.
func (d *document) check(pointer string, value any) error {
	schema, ok := d.compiled[pointer]
	if !ok {
		var err error
		if schema, err = d.compiler.Compile(where + "#" + pointer); err != nil {
			return fmt.Errorf("compile %s: %w", pointer, err)
		}
		d.compiled[pointer] = schema
	}
	return schema.Validate(value)
}

// escape makes a name part of a JSON pointer within a URL.
func escape(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D", "+", "%2B").Replace(name)
}

package schemas

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/settleonce/settleonce/payment"
)

//go:embed command.json event.json reply.json requery.json callback.json deadletter.json headers.json
var documents embed.FS

// Golden holds one payload of every message and kind of every published version
// (golden/v1/KIND.VARIANT.json). They are kept for ever: what was once published
// must stay readable.
//
//go:embed golden
var Golden embed.FS

// AsyncAPI is the AsyncAPI document: topics, operations, messages, security.
//
//go:embed asyncapi.yaml
var AsyncAPI []byte

// Kind names a message that has a schema.
type Kind string

// The kinds of messages.
const (
	Command  Kind = "command"
	Event    Kind = "event"
	Reply    Kind = "reply"
	Requery  Kind = "requery"
	Callback Kind = "callback"
	// DeadLetter is the headers of a dead letter as an object of strings; its
	// value is the original record's.
	DeadLetter Kind = "deadletter"
	// Headers is the CloudEvents headers of what we publish, as an object of strings.
	Headers Kind = "headers"
)

// Kinds returns every kind that has a schema.
func Kinds() []Kind { return []Kind{Command, Event, Reply, Requery, Callback, DeadLetter, Headers} }

// Document returns the JSON Schema of a kind as it stands in the repository.
func Document(kind Kind) ([]byte, error) {
	document, err := documents.ReadFile(string(kind) + ".json")
	if err != nil {
		return nil, fmt.Errorf("find the schema of %q, which must be one of %v: %w", kind, Kinds(), err)
	}
	return document, nil
}

// ErrInvalid is wrapped by every error of Validate that is about the value.
var ErrInvalid = errors.New("value does not follow its schema")

// Validator checks values against the schemas. It is safe for concurrent use.
type Validator struct {
	compiled map[Kind]*jsonschema.Schema
}

// shared is compiled on first use.
var shared = sync.OnceValues(NewValidator)

// Validate is Validator.Validate on one Validator for the whole process.
func Validate(kind Kind, value []byte) error {
	v, err := shared()
	if err != nil {
		return err
	}
	return v.Validate(kind, value)
}

// NewValidator compiles the schemas, which takes some milliseconds: make one and
// keep it. Formats are asserted.
func NewValidator() (*Validator, error) {
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	validator := &Validator{compiled: make(map[Kind]*jsonschema.Schema, len(Kinds()))}
	for _, kind := range Kinds() {
		document, err := Document(kind)
		if err != nil {
			return nil, err
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
		if err != nil {
			return nil, fmt.Errorf("parse the schema of %s: %w", kind, err)
		}
		location := "settleonce:///" + string(kind) + ".json"
		if err := compiler.AddResource(location, value); err != nil {
			return nil, fmt.Errorf("add the schema of %s: %w", kind, err)
		}
		if validator.compiled[kind], err = compiler.Compile(location); err != nil {
			return nil, fmt.Errorf("compile the schema of %s: %w", kind, err)
		}
	}
	return validator, nil
}

// Validate checks a JSON value against the schema of its kind and the rules that
// its description adds (well-formed text, no name twice, no card number). The
// error names every place that is wrong, wraps ErrInvalid and never repeats the
// value.
func (v *Validator) Validate(kind Kind, value []byte) error {
	schema, ok := v.compiled[kind]
	if !ok {
		return fmt.Errorf("validate %q: the kind must be one of %v", kind, Kinds())
	}
	if err := checkText(value, schema.Properties); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrInvalid, kind, err)
	}
	instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		return fmt.Errorf("%w: %s: not JSON", ErrInvalid, kind)
	}
	var broken *jsonschema.ValidationError
	if err := schema.Validate(instance); errors.As(err, &broken) {
		return fmt.Errorf("%w: %s: %s", ErrInvalid, kind, describe(broken))
	} else if err != nil {
		return fmt.Errorf("validate %s: %w", kind, err)
	}
	if kind == Command {
		return checkCommand(value)
	}
	return nil
}

// checkCommand checks what the description of command.json adds to the schema.
func checkCommand(value []byte) error {
	var command struct {
		PaymentMethod string            `json:"paymentMethod"`
		Metadata      map[string]string `json:"metadata"`
	}
	if err := json.Unmarshal(value, &command); err != nil {
		return fmt.Errorf("%w: command: not readable", ErrInvalid)
	}
	total := 0
	for name, content := range command.Metadata {
		total += len(name) + len(content)
	}
	switch {
	case len(value) > payment.MaxCommandBytes:
		return fmt.Errorf("%w: command: longer than %d bytes", ErrInvalid, payment.MaxCommandBytes)
	case total > payment.MaxMetadataBytes:
		return fmt.Errorf("%w: command: metadata holds more than %d bytes", ErrInvalid, payment.MaxMetadataBytes)
	case payment.LooksLikeCard(command.PaymentMethod):
		return fmt.Errorf("%w: command: paymentMethod looks like a card number", ErrInvalid)
	default:
		return nil
	}
}

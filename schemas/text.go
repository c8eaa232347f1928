package schemas

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/settleonce/settleonce/payment"
)

// escapes finds the \u escapes of a JSON text; a backslash that is itself escaped
// is consumed first, so it cannot be taken for the start of one.
var escapes = regexp.MustCompile(`\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}`)

var errNotJSON = errors.New("not JSON")

// checkText checks what no schema can see because parsers hide it: text that is
// not UTF-8, half surrogate pairs, U+0000, names that occur twice, depth, and
// anything after the value. Names that the schema does not know may repeat: nobody
// reads them. It is written on encoding/json on purpose: the
// consumer's own decoder is checked against it.
func checkText(value []byte, known map[string]*jsonschema.Schema) error {
	if !utf8.Valid(value) {
		return errors.New("not UTF-8")
	}
	for _, escape := range escapes.FindAll(value, -1) {
		switch text := string(bytes.ToLower(escape)); {
		case text == `\u0000`:
			return errors.New("holds the character U+0000")
		case len(text) == 6 && text >= `\ud800` && text <= `\udfff`:
			return errors.New("holds half of a surrogate pair")
		}
	}
	tokens := json.NewDecoder(bytes.NewReader(value))
	tokens.UseNumber()
	if err := (&walker{tokens: tokens, known: known}).value(nil, 0); err != nil {
		return err
	}
	if _, err := tokens.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the value")
	}
	return nil
}

// walker reads a stream of tokens.
type walker struct {
	tokens *json.Decoder
	known  map[string]*jsonschema.Schema
}

// mustBeUnique reports whether somebody reads the members of this name: those
// the schema knows, and every one of metadata.
func (w *walker) mustBeUnique(path []string, name string) bool {
	return len(path) == 0 && w.known[name] != nil || len(path) == 1 && path[0] == "metadata"
}

// value reads one value whose own path and depth are given.
func (w *walker) value(path []string, depth int) error {
	token, err := w.tokens.Token()
	if err != nil {
		return errNotJSON
	}
	delimiter, container := token.(json.Delim)
	if !container {
		return nil
	}
	if depth++; depth > payment.MaxNesting {
		return fmt.Errorf("nested deeper than %d levels", payment.MaxNesting)
	}
	if delimiter == '{' {
		err = w.members(path, depth)
	} else {
		err = w.elements(path, depth)
	}
	if err != nil {
		return err
	}
	if _, err := w.tokens.Token(); err != nil { // the closing delimiter
		return errNotJSON
	}
	return nil
}

func (w *walker) members(path []string, depth int) error {
	seen := map[string]bool{}
	for w.tokens.More() {
		token, err := w.tokens.Token()
		name, isName := token.(string)
		if err != nil || !isName {
			return errNotJSON
		}
		if seen[name] && w.mustBeUnique(path, name) {
			return fmt.Errorf("has the name %q twice", payment.CleanText(name, payment.MaxMetadataKey))
		}
		seen[name] = true
		if err := w.value(append(slices.Clip(path), name), depth); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) elements(path []string, depth int) error {
	for w.tokens.More() {
		if err := w.value(append(slices.Clip(path), "[]"), depth); err != nil {
			return err
		}
	}
	return nil
}

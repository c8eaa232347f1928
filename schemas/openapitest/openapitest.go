// Package openapitest holds the exchanges of tests against the OpenAPI document:
// no answer that is not documented, and no request that is taken although the
// document forbids it. The document is 3.1, so its schemas are JSON Schema
// 2020-12 and are checked as such.
package openapitest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Transport checks every exchange that goes through it. A fault fails the test.
type Transport struct {
	t    testing.TB
	next http.RoundTripper

	mu       sync.Mutex
	document *document
	seen     map[string]bool
}

// New returns a Transport over next.
func New(t testing.TB, next http.RoundTripper) *Transport {
	t.Helper()
	d, err := load()
	if err != nil {
		t.Fatal(err)
	}
	return &Transport{t: t, next: next, document: d, seen: map[string]bool{}}
}

// RoundTrip makes the exchange and checks it.
func (x *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	sent, err := take(&r.Body)
	if err != nil {
		return nil, err
	}
	answer, err := x.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	got, err := take(&answer.Body)
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.check(r, sent, answer, got); err != nil {
		x.t.Errorf("%s %s → %s: %v\n%s\n%s", r.Method, r.URL, answer.Status, err, sent, got)
	}
	return answer, nil
}

// Seen reports whether an operation was answered with that status.
func (x *Transport) Seen(operation string, status int) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.seen[operation+" "+strconv.Itoa(status)]
}

// take reads a body and puts it back.
func take(body *io.ReadCloser) ([]byte, error) {
	if *body == nil {
		return nil, nil
	}
	content, err := io.ReadAll(*body)
	_ = (*body).Close()
	*body = io.NopCloser(bytes.NewReader(content))
	return content, err
}

// general are headers that need no documentation: those of every answer, and
// those that the status itself asks for.
var general = []string{
	"Date", "Content-Length", "Content-Type", "Cache-Control", "X-Content-Type-Options", "Vary", "Link", "Allow", "Connection",
}

func (x *Transport) check(r *http.Request, sent []byte, answer *http.Response, got []byte) error {
	path := resource(r.URL.Path)
	method := strings.ToLower(r.Method)
	if method == "head" {
		method, got = "get", nil
	}
	operation := at(x.document.root, "paths", path, method)
	if operation == nil {
		return outside(answer)
	}
	name, _ := operation["operationId"].(string)
	x.seen[name+" "+strconv.Itoa(answer.StatusCode)] = true
	pointer := "/paths/" + escape(path) + "/" + method
	if answer.StatusCode < http.StatusMultipleChoices {
		if err := x.request(path, operation, pointer, r, sent); err != nil {
			return fmt.Errorf("taken, although the document forbids it: %w", err)
		}
	}
	return x.answer(operation, pointer, answer, got)
}

// outside is what must come for what the document does not have.
func outside(answer *http.Response) error {
	switch answer.StatusCode {
	case http.StatusNotFound:
		return nil
	case http.StatusMethodNotAllowed:
		if answer.Header.Get("Allow") != "" {
			return nil
		}
	}
	return errors.New("the document has no such operation")
}

func (x *Transport) request(path string, operation object, pointer string, r *http.Request, sent []byte) error {
	shared := at(x.document.root, "paths", path)
	if err := x.parameters(shared["parameters"], "/paths/"+escape(path), r); err != nil {
		return err
	}
	if err := x.parameters(operation["parameters"], pointer, r); err != nil {
		return err
	}
	if operation["requestBody"] == nil {
		return nil
	}
	body, err := jsonschema.UnmarshalJSON(bytes.NewReader(sent))
	if err != nil {
		return fmt.Errorf("the body: %w", err)
	}
	media := at(operation, "requestBody", "content")
	for name := range media {
		return x.document.check(pointer+"/requestBody/content/"+escape(name)+"/schema", body)
	}
	return nil
}

func (x *Transport) parameters(list any, pointer string, r *http.Request) error {
	parameters, _ := list.([]any)
	for i, item := range parameters {
		parameter, _ := item.(object)
		parameter, at := x.document.resolve(parameter, pointer+"/parameters/"+strconv.Itoa(i))
		name, _ := parameter["name"].(string)
		value := ""
		switch parameter["in"] {
		case "header":
			value = r.Header.Get(name)
		case "query":
			value = r.URL.Query().Get(name)
		case "path":
			value = strings.Split(r.URL.Path, "/")[3] // /v1/payments/{key}
		}
		if value == "" {
			if parameter["required"] == true {
				return fmt.Errorf("parameter %s is missing", name)
			}
			continue
		}
		if err := x.document.check(at+"/schema", typed(parameter, value)); err != nil {
			return fmt.Errorf("parameter %s: %w", name, err)
		}
	}
	return nil
}

// typed reads a parameter as its schema's type.
func typed(parameter object, value string) any {
	if at(parameter, "schema")["type"] == "integer" {
		if n, err := strconv.Atoi(value); err == nil {
			return n
		}
	}
	return value
}

func (x *Transport) answer(operation object, pointer string, answer *http.Response, got []byte) error {
	status := strconv.Itoa(answer.StatusCode)
	documented, ok := at(operation, "responses")[status].(object)
	if !ok {
		return errors.New("the status is not documented")
	}
	documented, pointer = x.document.resolve(documented, pointer+"/responses/"+status)
	if err := x.headers(documented, pointer, answer.Header); err != nil {
		return err
	}
	media, _, err := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	if err != nil || at(documented, "content")[media] == nil {
		return fmt.Errorf("content type %q is not documented", media)
	}
	if got == nil {
		return nil // HEAD
	}
	body, err := jsonschema.UnmarshalJSON(bytes.NewReader(got))
	if err != nil {
		return fmt.Errorf("the body: %w", err)
	}
	return x.document.check(pointer+"/content/"+escape(media)+"/schema", body)
}

func (x *Transport) headers(documented object, pointer string, given http.Header) error {
	known := at(documented, "headers")
	for name, item := range known {
		header, _ := item.(object)
		header, at := x.document.resolve(header, pointer+"/headers/"+escape(name))
		value := given.Get(name)
		if value == "" {
			if header["required"] == true {
				return fmt.Errorf("header %s is missing", name)
			}
			continue
		}
		if err := x.document.check(at+"/schema", value); err != nil {
			return fmt.Errorf("header %s: %w", name, err)
		}
	}
	for name := range given {
		_, ok := known[name]
		for other := range known {
			ok = ok || strings.EqualFold(name, other)
		}
		if !ok && !slices.Contains(general, name) {
			return fmt.Errorf("header %s is not documented", name)
		}
	}
	return nil
}

// resource is the document's name for a path.
func resource(path string) string {
	parts := strings.Split(path, "/")
	switch {
	case path == "/v1/payments" || path == "/openapi.json":
		return path
	case len(parts) == 5 && strings.HasPrefix(path, "/v1/payments/") && parts[4] == "history":
		return "/v1/payments/{key}/history"
	case len(parts) == 4 && strings.HasPrefix(path, "/v1/payments/"):
		return "/v1/payments/{key}"
	case len(parts) == 4 && strings.HasPrefix(path, "/v1/callbacks/"):
		return "/v1/callbacks/{channel}"
	}
	return ""
}

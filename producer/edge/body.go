package edge

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/payment"
)

// maxBody leaves room for what the edge adds to a command.
const maxBody = payment.MaxCommandBytes - 1<<10

// readBody reads a JSON body.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, *Problem) {
	media, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	charset := strings.ToLower(parameters["charset"])
	if err != nil || media != "application/json" || (charset != "" && charset != "utf-8") {
		return nil, problemOf(CodeUnsupportedMedia, "send Content-Type: application/json")
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return nil, problemOf(CodeUnsupportedMedia, "send the body without a Content-Encoding")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		return body, nil
	}
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return nil, problemOf(CodeBodyTooLarge, "send at most 64,512 bytes; a payment needs a few hundred")
	}
	return nil, problemOf(CodeUnreadableBody, "the body ended early")
}

// command turns a body into a command of the caller. The body is read by the
// same strict decoder as everywhere: what the edge knows better is put in front of
// what the client said, so that a field that is there twice is found.
func command(body []byte, key uuid.UUID, caller *Caller, arrived time.Time) (payment.Command, *Problem) {
	var said map[string]json.RawMessage
	if !utf8.Valid(body) || json.Unmarshal(body, &said) != nil || said == nil {
		return payment.Command{}, problemOf(CodeUnreadableBody, "send one JSON object, in UTF-8, and nothing after it")
	}
	if problem := identityProblem(said, key, caller); problem != nil {
		return payment.Command{}, problem
	}
	if _, ok := said["issuedAt"]; !ok && caller.RequireIssuedAt {
		problem := problemOf(CodeInvalidRequest, "is missing: send the time of the intent, the same in every retry")
		problem.Field = "issuedAt"
		return payment.Command{}, problem
	}
	cmd, err := payment.DecodeStrict(complete(body, said, key, caller, arrived))
	if err == nil {
		return cmd, nil
	}
	return payment.Command{}, commandProblem(err)
}

// identityProblem refuses a body that contradicts the header or the credential.
// The caller is never taken from it (G12).
func identityProblem(said map[string]json.RawMessage, key uuid.UUID, caller *Caller) *Problem {
	// What is no string is left to the decoder.
	if text, ok := textOf(said["caller"]); ok && text != caller.Name {
		problem := problemOf(CodeCallerMismatch, "leave the caller out: it follows from the credential")
		problem.Field = "caller"
		return problem
	}
	if text, ok := textOf(said["idempotencyKey"]); ok && !strings.EqualFold(text, key.String()) {
		problem := problemOf(CodeInvalidRequest, "is another key than that of the Idempotency-Key header: leave it out")
		problem.Field = "idempotencyKey"
		return problem
	}
	return nil
}

func textOf(value json.RawMessage) (string, bool) {
	var text *string
	err := json.Unmarshal(value, &text)
	if err != nil || text == nil {
		return "", false
	}
	return *text, true
}

// complete adds the members that the client left out.
func complete(body []byte, said map[string]json.RawMessage, key uuid.UUID, caller *Caller, arrived time.Time) []byte {
	added := [...][2]string{
		{"idempotencyKey", key.String()},
		{"caller", caller.Name},
		{"operation", payment.OperationCharge},
		{"issuedAt", arrived.UTC().Truncate(time.Microsecond).Format(time.RFC3339Nano)},
	}
	start := bytes.IndexByte(body, '{') + 1 // it is an object
	out := append(make([]byte, 0, len(body)+256), '{')
	members := len(said)
	for _, member := range added {
		if _, ok := said[member[0]]; ok {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, `"`+member[0]+`":"`+member[1]+`"`...) // none of them needs an escape
	}
	if members > 0 && len(out) > 1 {
		out = append(out, ',')
	}
	return append(out, body[start:]...)
}

// commandProblem names the field, in the words of the command's own rules.
func commandProblem(err error) *Problem {
	invalid, ok := errors.AsType[*payment.CommandError](err)
	if !ok {
		return problemOf(CodeInvalidRequest, "")
	}
	if invalid.Reason == payment.DeadUnreadable {
		return problemOf(CodeUnreadableBody, invalid.Problem)
	}
	problem := problemOf(CodeInvalidRequest, invalid.Problem)
	problem.Field = invalid.Field
	return problem
}

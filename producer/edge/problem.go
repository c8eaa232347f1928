package edge

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/payment"
)

// Code is the stable, machine-readable reason of a problem. Clients may rely on
// it; titles and details are for people.
type Code string

// The codes of problems, beside those of rejections and conflicts, which are the
// codes of package payment. docs/http.md says what to do about each.
const (
	CodeUnreadableBody    Code = "UNREADABLE_BODY"
	CodeInvalidQuery      Code = "INVALID_QUERY"
	CodeMissingKey        Code = "MISSING_IDEMPOTENCY_KEY"
	CodeInvalidKey        Code = "INVALID_IDEMPOTENCY_KEY"
	CodeUnauthenticated   Code = "UNAUTHENTICATED"
	CodeCallerMismatch    Code = "CALLER_MISMATCH"
	CodeCallerNotAllowed  Code = "CALLER_NOT_ALLOWED"
	CodeNotFound          Code = "NOT_FOUND"
	CodeMethodNotAllowed  Code = "METHOD_NOT_ALLOWED"
	CodeBodyTooLarge      Code = "BODY_TOO_LARGE"
	CodeUnsupportedMedia  Code = "UNSUPPORTED_MEDIA_TYPE"
	CodeInvalidRequest    Code = "INVALID_REQUEST"
	CodeRateLimited       Code = "RATE_LIMITED"
	CodeInternal          Code = "INTERNAL"
	CodeNotDurable        Code = "NOT_DURABLE"
	CodeOverloaded        Code = "OVERLOADED"
	CodeUnavailable       Code = "UNAVAILABLE"
	CodeInvalidSignature  Code = "INVALID_SIGNATURE" // of a callback
	CodeUnknownChannel    Code = Code(payment.CodeUnknownChannel)
	CodeIdempotencyClash  Code = Code(payment.CodeIdempotencyConflict)
	CodePriorUnresolved   Code = Code(payment.CodePriorAttemptUnresolved)
	CodeAlreadyPaid       Code = Code(payment.CodeObligationAlreadyPaid)
	CodeInvalidCommand    Code = Code(payment.CodeInvalidCommand)
	CodeStaleCommand      Code = Code(payment.CodeStaleCommand)
	CodeChannelUnavailble Code = Code(payment.CodeChannelUnavailable)
)

// Problem is the body of every answer that is no success (RFC 9457).
type Problem struct {
	// Type is a link to the code's explanation.
	Type string `json:"type"`
	// Title says the same for every problem of the code.
	Title string `json:"title"`
	// Status is the HTTP status.
	Status int `json:"status"`
	// Code is what programs look at.
	Code Code `json:"code"`
	// Detail says what to change. It never repeats a value of the request.
	Detail string `json:"detail,omitempty"`
	// Field is the JSON name of the field that is wrong, if one is.
	Field string `json:"field,omitempty"`
	// RequestID is that of the X-Request-Id header.
	RequestID string `json:"requestId,omitempty"`
	// BlockedBy is the payment that stands in the way (G15).
	BlockedBy *uuid.UUID `json:"blockedBy,omitempty"`
	// Payment is what stands under the key, where the problem is about it.
	Payment *Payment `json:"payment,omitempty"`

	// retryAfter becomes the Retry-After header.
	retryAfter time.Duration
}

// docs is where the codes are explained.
const docs = "https://github.com/settleonce/settleonce/blob/main/docs/http.md"

// problemOf returns the problem of a code, with its status and title.
func problemOf(code Code, detail string) *Problem {
	kind, ok := kinds[code]
	if !ok {
		code, kind = CodeInternal, kinds[CodeInternal]
	}
	return &Problem{
		Type: docs + "#codes", Title: kind.title, Status: kind.status,
		Code: code, Detail: detail,
	}
}

// after adds when to try again.
func (p *Problem) after(wait time.Duration) *Problem {
	p.retryAfter = wait
	return p
}

type kind struct {
	status int
	title  string
}

// kinds is the one table of what a problem's code means in HTTP.
var kinds = map[Code]kind{
	CodeUnreadableBody:    {http.StatusBadRequest, "The body is not one JSON object"},
	CodeInvalidQuery:      {http.StatusBadRequest, "A parameter of the query is not valid"},
	CodeMissingKey:        {http.StatusBadRequest, "The Idempotency-Key header is missing"},
	CodeInvalidKey:        {http.StatusBadRequest, "The idempotency key is not a UUID version 4"},
	CodeUnauthenticated:   {http.StatusUnauthorized, "The credential is missing or not known"},
	CodeInvalidSignature:  {http.StatusUnauthorized, "The signature is missing, wrong or too old"},
	CodeCallerMismatch:    {http.StatusForbidden, "The body names another caller than the credential"},
	CodeCallerNotAllowed:  {http.StatusForbidden, "The caller may not publish commands"},
	CodeNotFound:          {http.StatusNotFound, "There is no such thing"},
	CodeMethodNotAllowed:  {http.StatusMethodNotAllowed, "The resource does not have this method"},
	CodeIdempotencyClash:  {http.StatusConflict, "The key stands for a payment with another content"},
	CodePriorUnresolved:   {http.StatusConflict, "Another payment of this obligation has no outcome yet"},
	CodeAlreadyPaid:       {http.StatusConflict, "Another payment has paid this obligation"},
	CodeChannelUnavailble: {http.StatusConflict, "The channel could not be reached for too long; nothing was sent"},
	CodeBodyTooLarge:      {http.StatusRequestEntityTooLarge, "The body is too large"},
	CodeUnsupportedMedia:  {http.StatusUnsupportedMediaType, "The body must be application/json, without an encoding"},
	CodeInvalidRequest:    {http.StatusUnprocessableEntity, "The request cannot be a payment; nothing was stored"},
	CodeInvalidCommand:    {http.StatusUnprocessableEntity, "The command was refused, and is remembered as refused"},
	CodeUnknownChannel:    {http.StatusUnprocessableEntity, "There is no such channel"},
	CodeStaleCommand:      {http.StatusUnprocessableEntity, "The intent is too old; it was not judged"},
	CodeRateLimited:       {http.StatusTooManyRequests, "The caller sends more than its rate limit"},
	CodeInternal:          {http.StatusInternalServerError, "Something is broken here"},
	CodeNotDurable:        {http.StatusServiceUnavailable, "Kafka did not acknowledge the payment"},
	CodeOverloaded:        {http.StatusServiceUnavailable, "Too many requests are under way"},
	CodeUnavailable:       {http.StatusServiceUnavailable, "Something that is needed does not answer"},
}

// writeProblem answers with a problem document.
func writeProblem(w http.ResponseWriter, r *http.Request, p *Problem) {
	p.RequestID = requestID(r.Context())
	noteCode(r.Context(), p.Code)
	if p.retryAfter > 0 {
		seconds := int64((p.retryAfter + time.Second - 1) / time.Second)
		w.Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
	}
	writeBody(w, "application/problem+json", p.Status, p)
}

// writeJSON answers with a JSON document.
func writeJSON(w http.ResponseWriter, status int, v any) {
	writeBody(w, "application/json", status, v)
}

func writeBody(w http.ResponseWriter, contentType string, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{}`) // what we answer always encodes
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the peer may be gone, nobody to tell
}

package schemas_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/payment"
	"github.com/settleonce/settleonce/payment/paymenttest"
	"github.com/settleonce/settleonce/schemas"
)

// document is what the tests look at in a schema.
type document struct {
	Schema      string   `json:"$schema"`
	ID          string   `json:"$id"`
	Title       string   `json:"title"`
	Description string   `json:"description"`
	Required    []string `json:"required"`
	Properties  map[string]struct {
		Description string `json:"description"`
		Enum        []any  `json:"enum"`
		Const       any    `json:"const"`
		Examples    []any  `json:"examples"`
	} `json:"properties"`
	Examples []json.RawMessage `json:"examples"`
}

func load(t *testing.T, kind schemas.Kind) document {
	t.Helper()
	raw, err := schemas.Document(kind)
	require.NoError(t, err)
	var doc document
	require.NoError(t, json.Unmarshal(raw, &doc))
	return doc
}

func TestSchemasDescribeThemselves(t *testing.T) {
	t.Parallel()
	v := validator(t)
	for _, kind := range schemas.Kinds() {
		doc := load(t, kind)
		require.Equal(t, "https://json-schema.org/draft/2020-12/schema", doc.Schema, kind)
		require.True(t, strings.HasSuffix(doc.ID, "/schemas/v1/"+string(kind)+".json"), doc.ID)
		require.NotEmpty(t, doc.Title, kind)
		require.NotEmpty(t, doc.Description, kind)
		for name, property := range doc.Properties {
			described := property.Description != "" || property.Const != nil
			require.True(t, described, "%s.%s needs a description", kind, name)
		}
		require.NotEmpty(t, doc.Examples, kind)
		for _, example := range doc.Examples {
			require.NoError(t, v.Validate(kind, example), kind)
		}
	}
}

// Every required field is required, of one type, and text cannot hide in it.
func TestSchemasRefuseWhatIsMissingOrOfAnotherType(t *testing.T) {
	t.Parallel()
	v := validator(t)
	for _, kind := range schemas.Kinds() {
		doc := load(t, kind)
		for _, name := range doc.Required {
			for _, value := range []any{nil, []any{}, map[string]any{}, 1.5, "", "\u0000", json.RawMessage(`"\ud83d"`)} {
				example := map[string]any{}
				require.NoError(t, json.Unmarshal(doc.Examples[0], &example))
				example[name] = value
				text, err := json.Marshal(example)
				require.NoError(t, err)
				require.ErrorIs(t, v.Validate(kind, text), schemas.ErrInvalid, "%s.%s = %v", kind, name, value)
			}
			example := map[string]any{}
			require.NoError(t, json.Unmarshal(doc.Examples[0], &example))
			delete(example, name)
			text, err := json.Marshal(example)
			require.NoError(t, err)
			err = v.Validate(kind, text)
			require.ErrorIs(t, err, schemas.ErrInvalid, "%s without %s", kind, name)
			require.ErrorContains(t, err, name, "the error names what is missing")
		}
	}
}

// Versions only add optional fields: a reader of today reads a writer of tomorrow.
func TestSchemasAcceptFieldsOfLaterVersions(t *testing.T) {
	t.Parallel()
	v := validator(t)
	for file, payload := range golden(t) {
		later := strings.Replace(string(payload), "{", `{"addedLater":{"a":[1]},`, 1)
		require.NoError(t, v.Validate(kindOf(file), []byte(later)), file)
	}
}

func TestReplySchemaTiesKindToContent(t *testing.T) {
	t.Parallel()
	v := validator(t)
	payloads := golden(t)
	for file, change := range map[string][2]string{
		"v1/reply.outcome.succeeded.json":                {`"outcome": {`, `"other": {`},
		"v1/reply.outcome.declined.json":                 {`"kind": "outcome"`, `"kind": "pending"`},
		"v1/reply.replayed.json":                         {`"replayed": true`, `"replayed": false`},
		"v1/reply.pending.json":                          {`"state": "unknown"`, `"state": "declined"`},
		"v1/reply.conflict.json":                         {`"IDEMPOTENCY_CONFLICT"`, `"STALE_COMMAND"`},
		"v1/reply.rejected.stale_command.json":           {`"code"`, `"other"`},
		"v1/reply.rejected.channel_unavailable.json":     {`"state": "rejected"`, `"state": "declined"`},
		"v1/reply.rejected.unknown_channel.json":         {`"kind": "rejected"`, `"kind": "refused"`},
		"v1/reply.rejected.obligation_already_paid.json": {`"blockedBy": "`, `"blockedBy": "x`},
	} {
		changed := strings.Replace(string(payloads[file]), change[0], change[1], 1)
		require.NotEqual(t, string(payloads[file]), changed, file)
		require.ErrorIs(t, v.Validate(schemas.Reply, []byte(changed)), schemas.ErrInvalid, file)
	}
}

func TestSchemaListsWhatTheDomainKnows(t *testing.T) {
	t.Parallel()
	currencies := payment.Currencies()
	slices.Sort(currencies)
	listed := load(t, schemas.Command).Properties["currency"].Enum
	require.Len(t, listed, len(currencies))
	for i, code := range currencies {
		require.Equal(t, code, listed[i])
	}
	reasons := load(t, schemas.DeadLetter).Properties["dl_reason"].Examples
	for _, reason := range []payment.DeadLetterReason{
		payment.DeadUnreadable, payment.DeadNoKey, payment.DeadKeyMismatch, payment.DeadStale, payment.DeadUnstorable,
		payment.DeadForeignCaller, payment.DeadNullValue,
	} {
		require.Contains(t, reasons, string(reason))
	}
}

// What the encoders of the hot path write follows the schemas.
func TestEncodersFollowTheSchemas(t *testing.T) {
	t.Parallel()
	v := validator(t)
	c := paymenttest.Command()
	follows, now := c.Identity().PaymentID(), time.Date(2026, 11, 30, 10, 0, 0, 123456789, time.FixedZone("x", 3600))
	c.Follows = &follows
	require.NoError(t, v.Validate(schemas.Command, c.AppendJSON(nil)))
	event := payment.Event{
		PaymentID: follows, Caller: c.Caller, Operation: c.Operation, IdempotencyKey: c.IdempotencyKey, OrderID: c.OrderID,
		Obligation: c.ObligationOrDefault(), Amount: c.Amount, Currency: c.Currency, Channel: c.Channel,
		Version: 1, Attempt: 1, OccurredAt: now,
	}
	for state := payment.Pending; state <= payment.Rejected; state++ {
		event.State = state
		require.NoError(t, v.Validate(schemas.Event, event.AppendJSON(nil)))
	}
	reply := payment.Reply{
		Kind: payment.ReplyOutcome, Caller: c.Caller, Operation: c.Operation, IdempotencyKey: c.IdempotencyKey, PaymentID: follows,
		State: payment.Declined, Outcome: &payment.Outcome{State: payment.Declined, Cause: "no \"funds\"\n", OccurredAt: now},
	}
	require.NoError(t, v.Validate(schemas.Reply, reply.AppendJSON(nil)))
	reply = payment.Reply{
		Kind: payment.ReplyRejected, Code: payment.CodePriorAttemptUnresolved, BlockedBy: &follows, Caller: c.Caller,
		Operation: c.Operation, IdempotencyKey: c.IdempotencyKey, PaymentID: uuid.New(), State: payment.Rejected,
	}
	require.NoError(t, v.Validate(schemas.Reply, reply.AppendJSON(nil)))
	requery := payment.Requery{PaymentID: follows, Attempt: 1, Query: 3, DueAt: now}
	require.NoError(t, v.Validate(schemas.Requery, requery.AppendJSON(nil)))
	requery.Query = 4
	require.ErrorIs(t, v.Validate(schemas.Requery, requery.AppendJSON(nil)), schemas.ErrInvalid)
}

func TestValidateSaysWhatToChange(t *testing.T) {
	t.Parallel()
	v := validator(t)
	valid := paymenttest.Command()
	text := string(valid.AppendJSON(nil))
	for want, change := range map[string][2]string{
		"amount must be at least 1":                {`1999`, `0`},
		"amount must be of type integer":           {`1999`, `"1999"`},
		"currency is not one of the values":        {`EUR`, `XAU`},
		"issuedAt is not a valid date-time":        {`11-30T`, `02-30T`},
		"idempotencyKey does not have the form":    {`-43e8-`, `-13e8-`},
		"orderId must have at most 128 characters": {`order-1001`, strings.Repeat("x", 129)},
		"metadata.cart must be of type string":     {`"c-55"`, `55`},
		"the value lacks caller":                   {`"caller"`, `"called"`},
		"paymentMethod looks like a card number":   {`tok_visa`, `4111111111111111`},
		`has the name "amount" twice`:              {`"amount"`, `"amount":1,"amount"`},
		"command: not JSON":                        {`{`, `{{`},
		"something follows the value":              {`{"idem`, `{} {"idem`},
	} {
		err := v.Validate(schemas.Command, []byte(strings.Replace(text, change[0], change[1], 1)))
		require.ErrorIs(t, err, schemas.ErrInvalid)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "4111111111111111")
	}
	require.NoError(t, schemas.Validate(schemas.Command, []byte(text)))
	require.ErrorIs(t, schemas.Validate(schemas.Command, []byte("{}")), schemas.ErrInvalid)
	require.ErrorContains(t, v.Validate("refund", []byte(text)), "the kind must be one of")
	_, err := schemas.Document("refund")
	require.Error(t, err)
}

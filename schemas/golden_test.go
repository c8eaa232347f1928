package schemas_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/payment"
	"github.com/settleonce/settleonce/schemas"
)

func validator(t *testing.T) *schemas.Validator {
	t.Helper()
	v, err := schemas.NewValidator()
	require.NoError(t, err)
	return v
}

// golden returns every golden payload by path.
func golden(t *testing.T) map[string][]byte {
	t.Helper()
	payloads := map[string][]byte{}
	files, err := fs.Glob(schemas.Golden, "golden/v*/*.json")
	require.NoError(t, err)
	for _, file := range files {
		payload, err := schemas.Golden.ReadFile(file)
		require.NoError(t, err)
		payloads[strings.TrimPrefix(file, "golden/")] = payload
	}
	require.NotEmpty(t, payloads)
	return payloads
}

// kindOf reads the kind from a golden file's name: v1/KIND.VARIANT.json.
func kindOf(file string) schemas.Kind {
	kind, _, _ := strings.Cut(path.Base(file), ".")
	return schemas.Kind(kind)
}

func TestGoldenPayloadsAreValid(t *testing.T) {
	t.Parallel()
	v := validator(t)
	kinds := map[schemas.Kind]bool{}
	for file, payload := range golden(t) {
		require.NoError(t, v.Validate(kindOf(file), payload), file)
		kinds[kindOf(file)] = true
	}
	for _, kind := range schemas.Kinds() {
		require.True(t, kinds[kind], "%s has no golden payload", kind)
	}
}

// What was once published stays as it was: a new version adds files, never
// changes one. The sums say so.
func TestGoldenPayloadsNeverChange(t *testing.T) {
	t.Parallel()
	sums, err := schemas.Golden.ReadFile("golden/SHA256SUMS")
	require.NoError(t, err)
	payloads := golden(t)
	for line := range strings.Lines(string(sums)) {
		sum, file, found := strings.Cut(strings.TrimSpace(line), "  ")
		require.True(t, found, line)
		require.Contains(t, payloads, file, "a golden payload must not be removed")
		got := sha256.Sum256(payloads[file])
		require.Equal(t, sum, hex.EncodeToString(got[:]), "%s must not be changed", file)
		delete(payloads, file)
	}
	require.Empty(t, payloads, "add new golden payloads to golden/SHA256SUMS")
}

// Today's code reads what every version published, and writes the same meaning.
func TestGoldenPayloadsAreRead(t *testing.T) {
	t.Parallel()
	for file, payload := range golden(t) {
		var got []byte
		switch kindOf(file) {
		case schemas.Command:
			command, err := payment.DecodeStrict(payload)
			require.NoError(t, err, file)
			require.NoError(t, command.Validate(), file)
			continue // times with an offset come back in UTC
		case schemas.Event:
			var event payment.Event
			require.NoError(t, json.Unmarshal(payload, &event), file)
			got = event.AppendJSON(nil)
		case schemas.Reply:
			var reply payment.Reply
			require.NoError(t, json.Unmarshal(payload, &reply), file)
			got = reply.AppendJSON(nil)
		case schemas.Requery:
			var requery payment.Requery
			require.NoError(t, json.Unmarshal(payload, &requery), file)
			got = requery.AppendJSON(nil)
		case schemas.Callback:
			var callback payment.CallbackMessage
			require.NoError(t, json.Unmarshal(payload, &callback), file)
			got = callback.AppendJSON(nil)
		case schemas.DeadLetter, schemas.Headers:
			continue
		}
		require.JSONEq(t, string(payload), string(got), file)
	}
}

// Every kind of message has a payload that shows it.
func TestGoldenPayloadsCoverEveryKind(t *testing.T) {
	t.Parallel()
	payloads := golden(t)
	for _, eventType := range []payment.EventType{
		payment.EventAccepted, payment.EventSucceeded, payment.EventDeclined, payment.EventRejected,
		payment.EventUnknown, payment.EventReviewRequired, payment.EventEvidenceConflict,
	} {
		name := strings.TrimPrefix(string(eventType), "payment.")
		require.Contains(t, payloads, "v1/event."+name+".json")
	}
	kinds, codes := map[payment.ReplyKind]bool{}, map[payment.Code]bool{}
	for file, payload := range payloads {
		if kindOf(file) == schemas.Reply {
			var reply payment.Reply
			require.NoError(t, json.Unmarshal(payload, &reply))
			kinds[reply.Kind], codes[reply.Code] = true, true
		}
	}
	for _, kind := range []payment.ReplyKind{
		payment.ReplyAccepted, payment.ReplyOutcome, payment.ReplyReplayed,
		payment.ReplyPending, payment.ReplyConflict, payment.ReplyRejected,
	} {
		require.True(t, kinds[kind], string(kind))
	}
	for _, code := range []payment.Code{
		payment.CodeInvalidCommand, payment.CodeStaleCommand, payment.CodePriorAttemptUnresolved,
		payment.CodeObligationAlreadyPaid, payment.CodeUnknownChannel, payment.CodeChannelUnavailable, payment.CodeIdempotencyConflict,
	} {
		require.True(t, codes[code], string(code))
	}
}

package outbox

import (
	"encoding/json"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzHeaders: the column gives back what was written, byte for byte (G5).
func FuzzHeaders(f *testing.F) {
	f.Add("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "subject")
	f.Add("", "", "")
	f.Add("\xff", "\x00", "\xed\xa0\x80")
	f.Add(binaryPrefix, binaryPrefix+"AA==", binaryPrefix)
	f.Add("a\"\\\n", "\u2028é\x7f", "</script>")
	f.Fuzz(func(t *testing.T, name, value, subject string) {
		m := Message{Subject: subject, Headers: map[string]string{name: value, "second": name}}
		column := encodeHeaders(&m)
		require.NotNil(t, column)
		require.True(t, json.Valid([]byte(*column)) && storable(*column), "%q", *column)
		got, err := decodeHeaders(nil, []byte(*column))
		require.NoError(t, err)
		want := maps.Clone(m.Headers)
		maps.DeleteFunc(want, func(name, _ string) bool { return derived(name) })
		if subject != "" {
			want[headerSubject] = subject
		}
		read := make(map[string]string, len(got))
		for _, h := range got {
			read[h.Key] = string(h.Value)
		}
		require.Equal(t, want, read)
		require.Len(t, got, len(want))
	})
}

// FuzzDecodeHeaders: a row that somebody else wrote is read as encoding/json
// reads it, or its key is parked with an error; never a panic.
func FuzzDecodeHeaders(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"a":"b"}`, `{"a":"b","c":"d"}`, ` { "a" : "\u0041" } `, `{"a":1}`, `{"a":null}`, `null`, `[]`, `{"a":"b"`, `{"a":"b",}`, `{,}`,
		`{"a":"data:;base64,AAE="}`, `{"a":"data:;base64,?"}`, `{"a":"b"}x`, `{"a":"b","a":"c"}`, `{"a""b"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, column []byte) {
		plain, ok := decodePlain(nil, column)
		if ok {
			var object map[string]string
			require.NoError(t, json.Unmarshal(column, &object))
			read := make(map[string]string, len(plain))
			for _, h := range plain {
				read[h.Key] = string(h.Value)
			}
			require.Equal(t, object, read)
		}
		if _, err := decodeHeaders(nil, column); err != nil {
			require.ErrorIs(t, err, errHeaders)
		}
	})
}

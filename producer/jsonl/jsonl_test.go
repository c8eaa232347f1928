package jsonl_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/settleonce/settleonce/internal/leaktest"
	"github.com/settleonce/settleonce/payment"
	"github.com/settleonce/settleonce/producer"
	"github.com/settleonce/settleonce/producer/jsonl"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const (
	key      = "8e03978e-40d5-43e8-bc93-6894a57f9324"
	content  = `"caller":"shop","orderId":"order-1001","amount":1999,"currency":"EUR","customerId":"cust-7","paymentMethod":"tok_visa","channel":"sim"`
	identity = `"idempotencyKey":"` + key + `","operation":"charge","issuedAt":"2026-11-30T10:00:00.123Z"`
	intent   = "{" + content + "}"
	command  = "{" + identity + "," + content + "}"
)

func read(t *testing.T, text string) jsonl.Input {
	t.Helper()
	in, err := jsonl.Read(strings.NewReader(text))
	require.NoError(t, err)
	return in
}

func TestReadCommand(t *testing.T) {
	t.Parallel()
	in := read(t, command)
	require.Empty(t, in.Problems)
	require.Len(t, in.Lines, 1)
	require.Equal(t, 1, in.Lines[0].Number)
	require.False(t, in.Generated())
	want, err := payment.DecodeStrict([]byte(command))
	require.NoError(t, err)
	require.Equal(t, want, in.Lines[0].Command)
}

func TestReadIntentGetsAKeyOnce(t *testing.T) {
	t.Parallel()
	in := read(t, intent+"\n"+intent+"\n")
	require.Empty(t, in.Problems)
	require.Len(t, in.Lines, 2)
	require.True(t, in.Generated())
	first, second := in.Lines[0].Command, in.Lines[1].Command
	require.NotEqual(t, first.IdempotencyKey, second.IdempotencyKey, "two lines are two payments")
	require.Equal(t, payment.OperationCharge, first.Operation)
	require.WithinDuration(t, time.Now(), first.IssuedAt, time.Minute)

	// What is kept of it is a command whose retry is the same payment.
	again := read(t, string(first.AppendJSON(nil)))
	require.Equal(t, first, again.Lines[0].Command)
	require.False(t, again.Generated())
}

func TestReadIntentKeepsItsTime(t *testing.T) {
	t.Parallel()
	in := read(t, `{"issuedAt":"2026-11-30T10:00:00Z",`+content+`}`)
	require.Empty(t, in.Problems)
	require.Equal(t, time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC), in.Lines[0].Command.IssuedAt)
}

func TestReadLayout(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"no newline at the end": command,
		"newline at the end":    command + "\n",
		"CRLF":                  command + "\r\n",
		"byte order mark":       "\xef\xbb\xbf" + command,
		"mark and CRLF":         "\xef\xbb\xbf\r\n" + command + "\r\n\r\n",
		"empty lines":           "\n\n  \t\n" + command + "\n\n",
		"space around":          "  " + command + "\t\n",
		"the same line twice":   command + "\n" + command,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := read(t, text)
			require.Empty(t, in.Problems)
			require.NotEmpty(t, in.Lines)
			require.Equal(t, key, in.Lines[0].Command.IdempotencyKey.String())
		})
	}
	for name, text := range map[string]string{"nothing": "", "a mark": "\xef\xbb\xbf", "empty lines": "\n\r\n \n"} {
		in := read(t, text)
		require.Empty(t, in.Lines, name)
		require.Empty(t, in.Problems, name)
	}
}

func TestReadSaysWhatToChangeAndWhere(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ line, want string }{
		"zero amount":           {strings.Replace(command, "1999", "0", 1), "amount must be between 1 and 9007199254740991 minor units"},
		"negative amount":       {strings.Replace(intent, "1999", "-1999", 1), "amount must be between 1 and 9007199254740991 minor units"},
		"overflowing amount":    {strings.Replace(intent, "1999", "99999999999999999999", 1), "amount must be between 1 and 9007199254740991 minor units"},
		"amount in euros":       {strings.Replace(intent, "1999", "19.99", 1), "amount must be a whole number of minor units"},
		"amount as text":        {strings.Replace(intent, "1999", `"1999"`, 1), "amount must be a number, not a string or anything else"},
		"misspelled field":      {strings.Replace(intent, "amount", "sum", 1), "has a field that is not part of a command; remove it or correct its name: sum"},
		"field in capitals":     {strings.Replace(intent, "amount", "Amount", 1), "has a field that is not part of a command; remove it or correct its name: Amount"},
		"field twice":           {`{"amount":1,` + content + `}`, "amount must not occur twice"},
		"missing field":         {strings.Replace(intent, `"customerId":"cust-7",`, "", 1), "customerId is missing; every command needs it"},
		"null":                  {`{"obligation":null,` + content + `}`, "obligation must be a string; leave it out rather than null if it is optional"},
		"currency":              {strings.Replace(intent, "EUR", "eur", 1), "currency must be a current ISO 4217 code in capitals, like EUR"},
		"card number":           {strings.Replace(intent, "tok_visa", "4242424242424242", 1), "paymentMethod looks like a card number; send a token of the provider instead, never card data"},
		"NUL":                   {strings.Replace(intent, "order-1001", `a\u0000b`, 1), "orderId"},
		"key of version 7":      {strings.Replace(command, "40d5-43e8", "40d5-73e8", 1), "idempotencyKey must be a UUID version 4 in its 36-character form, made once per intent"},
		"nil key":               {strings.Replace(command, key, uuid.Nil.String(), 1), "idempotencyKey must be a UUID version 4"},
		"empty key":             {strings.Replace(command, key, "", 1), "idempotencyKey must be a UUID version 4"},
		"null key":              {strings.Replace(command, `"`+key+`"`, "null", 1), "idempotencyKey must be a string"},
		"key without time":      {`{"idempotencyKey":"` + key + `","operation":"charge",` + content + `}`, "issuedAt is missing"},
		"other operation":       {`{"operation":"refund",` + content + `}`, `operation must be "charge"`},
		"empty object":          {"{}", "caller is missing"},
		"not JSON":              {"order-1001;1999;EUR", "write one command per line, as jq -c does"},
		"cut off":               {command[:40], "write one command per line, as jq -c does"},
		"pretty-printed":        {"{", "write one command per line, as jq -c does"},
		"array":                 {"[" + command + "]", "write one command per line, as jq -c does"},
		"two on a line":         {command + command, "write one command per line, as jq -c does"},
		"comma at the end":      {command + ",", "write one command per line, as jq -c does"},
		"not UTF-8":             {strings.Replace(intent, "cust-7", "cust-\xff", 1), "must be valid UTF-8"},
		"mark in the middle":    {"\xef\xbb\xbf" + command, "write one command per line, as jq -c does"},
		"huge":                  {strings.Replace(intent, "cust-7", strings.Repeat("x", 3<<20), 1), "is longer than 65536 bytes"},
		"huge by spaces inside": {strings.Replace(command, ",", strings.Repeat(" ", 65536)+",", 1), "is longer than 65536 bytes"},
		"big metadata":          {`{"metadata":{"a":"` + strings.Repeat("x", 60<<10) + `"},` + content + `}`, "metadata"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other := strings.Replace(command, "order-1001", "order-1002", 1)
			other = strings.Replace(other, key, "8e03978e-40d5-43e8-bc93-6894a57f9325", 1)
			for _, ending := range []string{"\n", "\r\n"} {
				in := read(t, "\n"+other+ending+test.line+ending+intent)
				require.Len(t, in.Problems, 1)
				require.Equal(t, 3, in.Problems[0].Line)
				require.True(t, strings.HasPrefix(in.Problems[0].String(), "line 3: "))
				require.Contains(t, in.Problems[0].String(), test.want)
				require.NotContains(t, in.Problems[0].String(), "4242")
				require.Len(t, in.Lines, 2, "the lines around it are read")
				require.Equal(t, 4, in.Lines[1].Number)
			}
			in := read(t, intent+"\n"+test.line) // as the last line, without an end
			require.Len(t, in.Problems, 1)
			require.Equal(t, 2, in.Problems[0].Line)
		})
	}
}

func TestReadRefusesAKeyWithTwoContents(t *testing.T) {
	t.Parallel()
	in := read(t, command+"\n"+command+"\n"+strings.Replace(command, "1999", "2999", 1)+"\n")
	require.Len(t, in.Lines, 2, "a retry in the same file is fine")
	require.Len(t, in.Problems, 1)
	require.Contains(t, in.Problems[0].String(), "line 3: idempotencyKey is that of line 1, which has other content")

	// Another caller's payment is another one, also with the same key (G12).
	in = read(t, command+"\n"+strings.Replace(strings.Replace(command, "1999", "2999", 1), "shop", "desk", 1))
	require.Empty(t, in.Problems)
}

func TestReadFailures(t *testing.T) {
	t.Parallel()
	broken := errors.New("disk broken")
	_, err := jsonl.Read(io.MultiReader(strings.NewReader(command+"\n"+command[:9]), iotest.ErrReader(broken)))
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "line 2")
	_, err = jsonl.Read(io.MultiReader(strings.NewReader(strings.Repeat("x", 100_000)), iotest.ErrReader(broken)))
	require.ErrorIs(t, err, broken)
	for _, mark := range []string{"\xff\xfe{\x00", "\xfe\xff\x00{"} {
		_, err = jsonl.Read(strings.NewReader(mark))
		require.ErrorIs(t, err, jsonl.ErrEncoding)
	}
	_, err = jsonl.Read(strings.NewReader(strings.Repeat("\n", jsonl.MaxLines)))
	require.NoError(t, err)
	_, err = jsonl.Read(strings.NewReader(strings.Repeat("\n", jsonl.MaxLines) + command))
	require.ErrorIs(t, err, jsonl.ErrTooManyLines)
}

// One byte at a time reads the same as all at once.
func TestReadInPieces(t *testing.T) {
	t.Parallel()
	text := "\xef\xbb\xbf" + command + "\r\n\r\nnonsense\r\n" + strings.Repeat("y", 70_000) + "\r\n" + command
	in, err := jsonl.Read(iotest.OneByteReader(strings.NewReader(text)))
	require.NoError(t, err)
	require.Equal(t, read(t, text), in)
	require.Len(t, in.Lines, 2)
	require.Equal(t, 5, in.Lines[1].Number)
	require.Equal(t, []int{3, 4}, []int{in.Problems[0].Line, in.Problems[1].Line})
}

func FuzzRead(f *testing.F) {
	for _, seed := range []string{command, intent, "{}", "{\"a\":{}}\n[]", "\xef\xbb\xbf{", "{\"idempotencyKey\":1}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		in, err := jsonl.Read(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, line := range in.Lines {
			require.NoError(t, line.Command.Validate())
		}
		require.LessOrEqual(t, len(in.Lines)+len(in.Problems), strings.Count(text, "\n")+1)
	})
}

func startBroker(t *testing.T) (*kfake.Cluster, *producer.Producer) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "payment.commands"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	return cluster, newProducer(t, cluster, producer.Config{})
}

func newProducer(t *testing.T, cluster *kfake.Cluster, cfg producer.Config) *producer.Producer {
	t.Helper()
	cfg.Brokers = cluster.ListenAddrs()
	if cfg.Timeout == 0 {
		cfg.Timeout = time.Minute // a pause of the machine makes nothing unknown
	}
	p, err := producer.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close(context.Background())) })
	return p
}

func keysInTopic(t *testing.T, cluster *kfake.Cluster, n int) map[string]int {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumeTopics("payment.commands"))
	require.NoError(t, err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	keys := make(map[string]int)
	for read := 0; read < n; {
		fetches := c.PollFetches(ctx)
		require.NoError(t, fetches.Err0())
		fetches.EachRecord(func(r *kgo.Record) { keys[string(r.Key)]++; read++ })
	}
	return keys
}

func intents(n int) string {
	lines := make([]string, n)
	for i := range lines {
		lines[i] = strings.Replace(intent, "order-1001", fmt.Sprintf("order-%d", i), 1)
	}
	return strings.Join(lines, "\n")
}

func TestPublishAll(t *testing.T) {
	t.Parallel()
	cluster, p := startBroker(t)
	in := read(t, intents(25))
	var progress []int
	report := jsonl.Publish(t.Context(), p, in, jsonl.Options{BatchSize: 10, Progress: func(handled, total int) {
		require.Equal(t, 25, total)
		progress = append(progress, handled)
	}})
	require.Equal(t, jsonl.Report{Published: 25}, report)
	require.True(t, report.Complete())
	require.Equal(t, []int{10, 20, 25}, progress)
	require.Len(t, keysInTopic(t, cluster, 25), 25)
}

func TestPublishNothingOfAnInputWithMistakes(t *testing.T) {
	t.Parallel()
	cluster, p := startBroker(t)
	produced := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Count: -1, Observe: true})
	in := read(t, intents(3)+"\nnonsense")
	report := jsonl.Publish(t.Context(), p, in, jsonl.Options{})
	require.Equal(t, []int{0, 3, 1}, []int{report.Published, report.NotSent, report.Invalid})
	require.Zero(t, produced.Hits())
	require.False(t, report.Complete())
	require.Equal(t, jsonl.Invalid, report.Details[0].Status)
	require.Equal(t, 4, report.Details[0].Line)
	require.Contains(t, report.Next, "--skip-invalid")

	report = jsonl.Publish(t.Context(), p, in, jsonl.Options{SkipInvalid: true})
	require.Equal(t, []int{3, 0, 1}, []int{report.Published, report.NotSent, report.Invalid})
	require.False(t, report.Complete(), "what was skipped is still to be published")
	require.Len(t, keysInTopic(t, cluster, 3), 3)
}

// The answers get lost: unknown, with the keys; the lines after it are not sent.
// Publishing the same input again brings the same keys.
func TestPublishStopsAndCanBeRepeated(t *testing.T) {
	t.Parallel()
	cluster, p := startBroker(t)
	impatient := newProducer(t, cluster, producer.Config{Attempts: 1, Timeout: 20 * time.Second})
	fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.RequestTimedOut, Count: -1})
	in := read(t, intents(10))
	report := jsonl.Publish(t.Context(), impatient, in, jsonl.Options{BatchSize: 4})
	require.Equal(t, []int{0, 4, 6}, []int{report.Published, report.Unknown, report.NotSent})
	require.Len(t, report.Details, 10)
	require.Equal(t, jsonl.Unknown, report.Details[0].Status)
	require.Equal(t, in.Lines[0].Command.IdempotencyKey, *report.Details[0].Key)
	require.Equal(t, jsonl.NotSent, report.Details[9].Status)
	require.Contains(t, report.Next, "same keys")
	fault.Remove()

	report = jsonl.Publish(t.Context(), p, in, jsonl.Options{BatchSize: 4})
	require.True(t, report.Complete())
	keys := keysInTopic(t, cluster, 14)
	require.Len(t, keys, 10)
	for i, line := range in.Lines {
		want := 1
		if i < 4 {
			want = 2
		}
		require.Equal(t, want, keys[line.Command.IdempotencyKey.String()])
	}
}

func TestPublishInterrupted(t *testing.T) {
	t.Parallel()
	cluster, p := startBroker(t)
	ctx, cancel := context.WithCancel(t.Context())
	report := jsonl.Publish(ctx, p, read(t, intents(10)), jsonl.Options{BatchSize: 5, Progress: func(int, int) { cancel() }})
	require.Equal(t, []int{5, 0, 5}, []int{report.Published, report.Unknown, report.NotSent})
	require.Len(t, keysInTopic(t, cluster, 5), 5)
}

func TestPublishWithClosedProducer(t *testing.T) {
	t.Parallel()
	_, p := startBroker(t)
	require.NoError(t, p.Close(t.Context()))
	report := jsonl.Publish(t.Context(), p, read(t, intents(3)), jsonl.Options{BatchSize: 2})
	require.Equal(t, 3, report.NotSent)
	require.Len(t, report.Details, 3)
}

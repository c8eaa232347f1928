package consumer

import (
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/internal/tracing"
	"github.com/settleonce/settleonce/payment"
	"github.com/settleonce/settleonce/payment/paymenttest"
)

// FuzzReadRecord: every record is a command for its caller's own topic, a refusal
// under a key that can be read, or a dead letter with its bytes (G5, G12, B17).
func FuzzReadRecord(f *testing.F) {
	for _, c := range paymenttest.Corpus() {
		if len(c.Value) < 2048 {
			f.Add([]byte(paymenttest.Key), c.Value, "traceparent", []byte("00-1"))
		}
	}
	good := paymenttest.Command()
	f.Add([]byte(nil), good.AppendJSON(nil), "", []byte(nil))
	f.Add([]byte(nil), good.AppendJSON(nil), "traceparent", []byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"))
	f.Add([]byte("other"), good.AppendJSON(nil), "\x00\xff", []byte{0, 0xff})
	channels, err := channel.NewRegistry(map[string]channel.Entry{"sim": {
		Adapter: &sim.Adapter{}, Capabilities: channel.Capabilities{Identity: "sim/test"}.WithDefaults(),
	}})
	require.NoError(f, err)
	settler, err := settle.New(settle.Config{Store: store.New(store.Config{}), Rules: settle.Rules{Channels: channels}})
	require.NoError(f, err)
	c := &Consumer{cfg: Config{Settler: settler, Callers: AnyCaller{}}}
	f.Fuzz(func(t *testing.T, key, value []byte, name string, content []byte) {
		a := c.read(&kafka.Delivery{Record: kafka.Record{
			Topic: "payment.commands", Offset: 7, Time: time.UnixMilli(1), Key: key, Value: value,
			Headers: []kafka.Header{{Key: name, Value: content}},
		}})
		require.Equal(t, value, a.Raw.Value)
		require.Equal(t, key, a.Raw.Key)
		require.Len(t, a.Raw.Headers, 1)
		if a.Trace != "" {
			require.Equal(t, []string{tracing.Header, tracing.Valid(string(content))}, []string{name, a.Trace})
		}
		for _, text := range a.Raw.Headers {
			require.True(t, utf8.ValidString(text))
		}
		switch {
		case a.Dead != nil:
			require.NotEmpty(t, a.Dead.Reason)
			require.NotEmpty(t, a.Dead.Error)
			require.Nil(t, a.Refusal)
		case a.Refusal != nil:
			require.NotEmpty(t, a.Refusal.Code)
			require.NotZero(t, a.Identity)
			require.NotZero(t, a.Fingerprint)
		default:
			require.NoError(t, a.Command.Validate())
			require.Equal(t, a.Command.Identity(), a.Identity)
			require.Equal(t, a.Command.Caller, a.Namespace)
			require.NotEmpty(t, a.ChannelIdentity)
			require.NotEqual(t, payment.Fingerprint{}, a.Fingerprint)
		}
	})
}

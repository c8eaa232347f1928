package consumer

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment/paymenttest"
)

// BenchmarkRead judges one record without the database, as every command is.
func BenchmarkRead(b *testing.B) {
	channels, err := channel.NewRegistry(map[string]channel.Entry{"sim": {
		Adapter: &sim.Adapter{}, Capabilities: channel.Capabilities{Identity: "sim/test"}.WithDefaults(),
	}})
	require.NoError(b, err)
	settler, err := settle.New(settle.Config{Store: store.New(store.Config{}), Rules: settle.Rules{Channels: channels}})
	require.NoError(b, err)
	c := &Consumer{cfg: Config{Settler: settler, Callers: AnyCaller{}}}
	command := paymenttest.Command()
	record := kafka.Record{
		Topic: "payment.commands", Offset: 7, Time: time.UnixMilli(1), Key: []byte(command.IdempotencyKey.String()), Value: command.AppendJSON(nil),
		Headers: []kafka.Header{
			{Key: "ce_specversion", Value: []byte("1.0")},
			{Key: "ce_id", Value: []byte(command.Identity().PaymentID().String())},
			{Key: "ce_type", Value: []byte("payment.command")},
			{Key: "content-type", Value: []byte("application/json")},
		},
	}
	traced := record
	traced.Headers = slices.Concat(record.Headers, []kafka.Header{
		{Key: "traceparent", Value: []byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")},
	})
	for name, r := range map[string]kafka.Record{"without trace": record, "with trace": traced} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.read(&kafka.Delivery{Record: r})
			}
		})
	}
}

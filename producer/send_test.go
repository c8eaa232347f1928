package producer_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/payment"
	"github.com/settleonce/settleonce/producer"
)

func TestSendTellsWhereTheCommandIs(t *testing.T) {
	t.Parallel()
	cluster := broker(t, "")
	p := newProducer(t, cluster, nil)
	topic := payment.NewTopics("").Commands
	cmds := commands(t, 40)
	places := make([]producer.Place, len(cmds))
	var wg sync.WaitGroup
	for i := range cmds {
		wg.Go(func() {
			var err error
			places[i], err = p.Send(t.Context(), cmds[i], producer.Options{Headers: map[string]string{"traceparent": "00-a-b-01"}})
			if err != nil {
				t.Errorf("send: %v", err)
			}
		})
	}
	wg.Wait()
	at := make(map[producer.Place]string)
	for _, r := range take(t, reader(t, cluster, topic), len(cmds)) {
		at[producer.Place{Topic: r.Topic, Partition: int(r.Partition), Offset: r.Offset}] = string(r.Key)
		require.Equal(t, "00-a-b-01", header(r, "traceparent"))
		require.Equal(t, "payment.command", header(r, "ce_type"))
	}
	for i := range cmds {
		require.Equal(t, cmds[i].IdempotencyKey.String(), at[places[i]])
	}
}

func TestSendErrorsAreThoseOfPublish(t *testing.T) {
	t.Parallel()
	cluster := broker(t, "")
	p := newProducer(t, cluster, impatient)
	cmd := commands(t, 1)[0]
	_, err := p.Send(t.Context(), cmd, producer.Options{Topic: "not.there"})
	require.ErrorIs(t, err, producer.ErrUnknown)
	cmd.Currency = "eur"
	_, err = p.Send(t.Context(), cmd, producer.Options{})
	require.ErrorIs(t, err, producer.ErrInvalid)
	require.NoError(t, p.Close(context.Background()))
	_, err = p.Send(t.Context(), commands(t, 1)[0], producer.Options{})
	require.ErrorIs(t, err, producer.ErrClosed)
}

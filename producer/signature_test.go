package producer_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/callers/signing"
	"github.com/settleonce/settleonce/internal/pgtest"
	"github.com/settleonce/settleonce/producer"
)

// What is published, directly or from the outbox, carries the signature of its
// own bytes, the same in every retry (G12).
func TestG12_PublishedCommandsAreSigned(t *testing.T) {
	t.Parallel()
	key, err := signing.NewKey("shop-1", "shop")
	require.NoError(t, err)
	signingKey, err := producer.ParseSigningKey(key.Line() + "\n")
	require.NoError(t, err)
	cluster := broker(t, "")
	p := newProducer(t, cluster, func(c *producer.Config) { c.SigningKey = signingKey })
	cmds := commands(t, 2)
	require.NoError(t, p.Publish(t.Context(), cmds[0], cmds[0]))
	pool := pgtest.New(t, producer.OutboxMigrate)
	enqueue(t, pool, cmds[1])
	stop := run(t, pool, p, producer.OutboxConfig{PollInterval: 5 * time.Millisecond})
	eventuallyEmpty(t, pool)
	stop()

	ring := signing.Ring{key.ID: key}
	records := take(t, reader(t, cluster, "payment.commands"), 3)
	signatures := map[string]int{}
	for _, r := range records {
		require.NoError(t, ring.Verify("shop", r.Key, r.Value, header(r, signing.Header)))
		signatures[header(r, signing.Header)]++
	}
	require.Len(t, signatures, 2, "a retry has the signature of the first")
}

func TestTopicOfACaller(t *testing.T) {
	t.Parallel()
	cluster := broker(t, "")
	p := newProducer(t, cluster, func(c *producer.Config) { c.Prefix, c.Topic = "payment.", "commands" })
	require.NoError(t, p.Publish(t.Context(), commands(t, 1)...))
	take(t, reader(t, cluster, "payment.commands"), 1)
}

func TestSigningKeyIsCheckedAndHidden(t *testing.T) {
	t.Parallel()
	key, err := signing.NewKey("shop-1", "shop")
	require.NoError(t, err)
	k, err := producer.ParseSigningKey(key.Line())
	require.NoError(t, err)
	secret := strings.Fields(key.Line())[2]
	inJSON, err := json.Marshal(k)
	require.NoError(t, err)
	for _, text := range []string{fmt.Sprintf("%v %+v %#v %s", k, k, k, k), string(inJSON), fmt.Sprintf("%+v", producer.Config{SigningKey: k})} {
		require.NotContains(t, text, secret[:8])
		require.NotContains(t, text, fmt.Sprintf("%d", k.Secret[:3]))
	}
	for _, wrong := range []producer.SigningKey{{ID: "shop-1"}, {Secret: k.Secret}, {ID: "a b", Secret: k.Secret}, {ID: "a", Secret: k.Secret[:31]}} {
		require.Error(t, producer.Config{Brokers: []string{"b:1"}, SigningKey: wrong}.WithDefaults().Validate())
	}
	for text, want := range map[string]string{"": "there are 0, give one", key.Line() + "\n2" + key.Line(): "there are 2", "x": "has 1 words"} {
		_, err := producer.ParseSigningKey(text)
		require.ErrorContains(t, err, want)
	}
}

package payment_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/payment"
)

// G12: a caller with topics of its own is told nothing in the common ones.
func TestG12_TopicsOfTheirOwn(t *testing.T) {
	t.Parallel()
	common := payment.NewTopics("x.")
	require.Equal(t, "x.payment.replies", common.RepliesOf("shop"))
	require.Equal(t, []string{"x.payment.events"}, common.AllEvents())
	own := common.WithOwn(map[string]string{"partner": "p", "partner-cron": "p", "kiosk": "kiosk"})
	require.Equal(t, "x.payment.replies", own.RepliesOf("shop"))
	require.Equal(t, "x.payment.events", own.EventsOf("shop"))
	require.Equal(t, "x.payment.replies.p", own.RepliesOf("partner"))
	require.Equal(t, "x.payment.events.p", own.EventsOf("partner-cron"))
	require.Equal(t, []string{"x.payment.replies", "x.payment.replies.kiosk", "x.payment.replies.p"}, own.AllReplies())
	require.Equal(t, []string{"x.payment.events", "x.payment.events.kiosk", "x.payment.events.p"}, own.AllEvents())
	require.Equal(t, "x.payment.replies", common.RepliesOf("partner"), "the original is as it was")
}

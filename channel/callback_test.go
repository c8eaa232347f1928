package channel_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel"
)

func TestCallbackSigning(t *testing.T) {
	t.Parallel()
	now := time.Unix(1764496800, 0)
	body := []byte(`{"id":"evt_77"}`)
	good := channel.SignCallback("new-secret", now, body)
	_, sum, _ := strings.Cut(good, ",")
	both := channel.CallbackSigning{Secrets: []string{"old-secret", "new-secret"}}
	cases := map[string]struct {
		signing channel.CallbackSigning
		header  string
		body    []byte
		at      time.Time
		want    error
	}{
		"signed":                          {both, good, body, now, nil},
		"signed with the older secret":    {both, channel.SignCallback("old-secret", now, body), body, now, nil},
		"second of two signatures":        {both, "t=1764496800,v1=00," + sum, body, now, nil},
		"other versions are ignored":      {both, good + ",v0=aa", body, now, nil},
		"just in time":                    {both, good, body, now.Add(5 * time.Minute), nil},
		"too old":                         {both, good, body, now.Add(5*time.Minute + time.Second), channel.ErrCallbackAge},
		"from the future":                 {both, good, body, now.Add(-6 * time.Minute), channel.ErrCallbackAge},
		"own bound":                       {channel.CallbackSigning{Secrets: []string{"new-secret"}, MaxAge: time.Second}, good, body, now.Add(2 * time.Second), channel.ErrCallbackAge},
		"another body":                    {both, good, []byte(`{"id":"evt_78"}`), now, channel.ErrCallbackSignature},
		"time made young":                 {both, "t=1764496801," + sum, body, now, channel.ErrCallbackSignature},
		"secret of somebody else":         {both, channel.SignCallback("theirs", now, body), body, now, channel.ErrCallbackSignature},
		"forged and old":                  {both, channel.SignCallback("theirs", now, body), body, now.Add(time.Hour), channel.ErrCallbackSignature},
		"no header":                       {both, "", body, now, channel.ErrCallbackSignature},
		"no signature":                    {both, "t=1764496800", body, now, channel.ErrCallbackSignature},
		"signature that is not hex":       {both, "t=1764496800,v1=zz", body, now, channel.ErrCallbackSignature},
		"time that is none":               {both, "t=soon" + strings.TrimPrefix(channel.SignCallback("new-secret", now, body), "t=1764496800"), body, now, channel.ErrCallbackSignature},
		"no secret":                       {channel.CallbackSigning{}, good, body, now, channel.ErrNoCallbackSecret},
		"an empty secret is none":         {channel.CallbackSigning{Secrets: []string{""}}, channel.SignCallback("", now, body), body, now, channel.ErrNoCallbackSecret},
		"an empty secret beside one":      {channel.CallbackSigning{Secrets: []string{"", "new-secret"}}, channel.SignCallback("", now, body), body, now, channel.ErrCallbackSignature},
		"the wanted one of too many":      {both, "t=1764496800" + strings.Repeat(",v1=00", 20) + "," + sum, body, now, channel.ErrCallbackSignature},
		"a second time does not override": {both, good + ",t=1", body, now, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorIs(t, tc.signing.Verify(tc.header, tc.body, tc.at), tc.want)
		})
	}
}

func TestCallbackCheck(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		change func(*channel.Callback)
		ok     bool
	}{
		"whole":                 {func(*channel.Callback) {}, true},
		"reference only":        {func(c *channel.Callback) { c.ProviderKey = uuid.Nil }, true},
		"key only":              {func(c *channel.Callback) { c.Reference = "" }, true},
		"amount not said":       {func(c *channel.Callback) { c.Amount, c.Currency = 0, "" }, true},
		"no id":                 {func(c *channel.Callback) { c.ID = "" }, false},
		"id too long":           {func(c *channel.Callback) { c.ID = strings.Repeat("x", 256) }, false},
		"id with a zero byte":   {func(c *channel.Callback) { c.ID = "evt\x00" }, false},
		"reference not UTF-8":   {func(c *channel.Callback) { c.Reference = "\xff" }, false},
		"nothing to find it by": {func(c *channel.Callback) { c.ProviderKey, c.Reference = uuid.Nil, "" }, false},
		"negative amount":       {func(c *channel.Callback) { c.Amount = -1 }, false},
		"amount too large":      {func(c *channel.Callback) { c.Amount = 1 << 53 }, false},
		"amount, no currency":   {func(c *channel.Callback) { c.Currency = "" }, false},
		"currency in lower":     {func(c *channel.Callback) { c.Currency = "eur" }, false},
		"no kind":               {func(c *channel.Callback) { c.Kind = "" }, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := channel.Callback{
				ID: "evt_77", ProviderKey: uuid.New(), Reference: "ch_1001", Kind: channel.CallbackSucceeded, Amount: 1999, Currency: "EUR",
			}
			tc.change(&c)
			if tc.ok {
				require.NoError(t, c.Check())
				return
			}
			require.ErrorIs(t, c.Check(), channel.ErrCallbackUnreadable)
		})
	}
}

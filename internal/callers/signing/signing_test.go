package signing_test

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/settleonce/settleonce/internal/callers/signing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	recordKey = []byte("8e03978e-40d5-43e8-bc93-6894a57f9324")
	value     = []byte(`{"caller":"shop","amount":1999}`)
)

func newKey(t *testing.T, id string, callers ...string) signing.Key {
	t.Helper()
	k, err := signing.NewKey(id, callers...)
	require.NoError(t, err)
	return k
}

// G12: a signature holds for one caller, one key and one value, and for nothing else.
func TestG12_SignatureProvesTheWriter(t *testing.T) {
	t.Parallel()
	old, shop := newKey(t, "shop-1", "shop", "shop-cron"), newKey(t, "shop-2", "shop")
	edge, stranger := newKey(t, "edge", signing.Everyone), newKey(t, "shop-1", "shop")
	ring := signing.Ring{old.ID: old, shop.ID: shop, edge.ID: edge}
	good := shop.Sign(recordKey, value)
	other := bytes.Replace(value, []byte("1999"), []byte("9999"), 1)
	for _, accepted := range []struct{ caller, signature string }{
		{"shop", good},
		{"shop", old.Sign(recordKey, value)},
		{"shop-cron", old.Sign(recordKey, value)},
		{"shop", edge.Sign(recordKey, value)},
		{"partner", edge.Sign(recordKey, value)},
	} {
		require.NoError(t, ring.Verify(accepted.caller, recordKey, value, accepted.signature))
	}
	for name, refused := range map[string]struct {
		caller, signature, want string
		key, value              []byte
	}{
		"another body":    {"shop", good, "does not match", recordKey, other},
		"another key":     {"shop", good, "does not match", []byte("8e03978e-40d5-43e8-bc93-6894a57f9325"), value},
		"another caller":  {"partner", good, "may not speak for", recordKey, value},
		"a guessed key":   {"shop", stranger.Sign(recordKey, value), "does not match", recordKey, value},
		"an unknown key":  {"shop", "v1:other:" + strings.Repeat("00", 32), "not known here", recordKey, value},
		"cut short":       {"shop", good[:len(good)-2], "does not match", recordKey, value},
		"an empty MAC":    {"shop", "v1:shop-2:", "does not match", recordKey, value},
		"not hex":         {"shop", "v1:shop-2:zz", "not hex", recordKey, value},
		"no id":           {"shop", "v1::00", "not of the form", recordKey, value},
		"another version": {"shop", "v2" + good[2:], "not of the form", recordKey, value},
		"rubbish":         {"shop", "\x00", "not of the form", recordKey, value},
		"none":            {"shop", "", "carries no signature", recordKey, value},
	} {
		err := ring.Verify(refused.caller, refused.key, refused.value, refused.signature)
		require.ErrorContains(t, err, refused.want, name)
	}
	require.ErrorIs(t, ring.Verify("shop", recordKey, value, ""), signing.ErrNone)
}

// What the documentation tells other languages to do is what we check.
func TestSignatureByOpenSSL(t *testing.T) {
	t.Parallel()
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("openssl is not installed")
	}
	k := newKey(t, "shop-1", "shop")
	secret := strings.Fields(k.Line())[2]
	cmd := exec.CommandContext(t.Context(), openssl, "dgst", "-sha256", "-mac", "HMAC", "-macopt", "hexkey:"+secret)
	cmd.Stdin = strings.NewReader("settleonce-command-v1\n" + string(recordKey) + "\n" + string(value))
	out, err := cmd.Output()
	require.NoError(t, err)
	sum := strings.TrimSpace(string(out[bytes.LastIndexByte(out, '=')+1:]))
	require.Equal(t, "v1:shop-1:"+sum, k.Sign(recordKey, value))
}

func TestFileOfKeys(t *testing.T) {
	t.Parallel()
	a, b := newKey(t, "shop-1", "shop", "shop-cron"), newKey(t, "edge", signing.Everyone)
	ring, err := signing.Parse("# keys\n\n" + a.Line() + "\r\n  " + b.Line() + "\n")
	require.NoError(t, err)
	require.Equal(t, signing.Ring{a.ID: a, b.ID: b}, ring)
	secret := strings.Fields(a.Line())[2]
	for text, want := range map[string]string{
		"shop-1 shop":                               "line 1 has 2 words",
		"\nshop-1 shop xyz":                         "line 2: the secret is not hex",
		"shop-1 shop " + secret[:62]:                "has 31 bytes",
		"sh:op shop " + secret:                      "is not 1 to 64 letters",
		"shop-1 shop+ " + secret:                    "names no caller",
		a.Line() + "\nshop-1 partner " + secret:     "line 2: the id shop-1 is there twice",
		strings.Repeat("i", 65) + " shop " + secret: "is not 1 to 64 letters",
	} {
		_, err := signing.Parse(text)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), secret[:16])
	}
	require.NotContains(t, fmt.Sprintf("%v %+v %#v", a, a, a), secret)
}

func BenchmarkVerify(b *testing.B) {
	k, err := signing.NewKey("shop-1", "shop")
	require.NoError(b, err)
	ring, body := signing.Ring{k.ID: k}, bytes.Repeat([]byte("x"), 400)
	signature := k.Sign(recordKey, body)
	for b.Loop() {
		if err := ring.Verify("shop", recordKey, body, signature); err != nil {
			b.Fatal(err)
		}
	}
}

package callers_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/callers"
	"github.com/settleonce/settleonce/internal/callers/signing"
)

// G5: whoever rewrites the file of keys may be seen in the middle of it, when it is empty. That is no news of keys that
// were taken out: nobody is refused by it.
func TestG5_EmptyFileOfKeysRefusesNobody(t *testing.T) {
	t.Parallel()
	key, err := signing.NewKey("shop-1", "shop")
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.WriteFile(path, []byte(key.Line()+"\n"), 0o600))
	s, err := callers.NewSignatures(path, []string{signing.Everyone})
	require.NoError(t, err)
	name, value := []byte("8e03978e-40d5-43e8-bc93-6894a57f9324"), []byte(`{"caller":"shop"}`)
	check := func() error { return s.Check("shop", name, value, []string{key.Sign(name, value)}) }
	require.NoError(t, check())

	for _, text := range []string{"", "# being written\n"} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		require.ErrorContains(t, s.Refresh(t.Context()), "no key")
		require.NoError(t, check())
	}
	_, err = callers.NewSignatures(path, nil)
	require.ErrorContains(t, err, "no key")
}

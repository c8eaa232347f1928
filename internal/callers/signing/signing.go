// Package signing proves who wrote a command to Kafka (G12).
//
// A signature is an HMAC-SHA256 over the record's key and value, and nothing
// else: no time and no topic. So it stays right when the command is published
// again, delivered again or brought back from the dead-letter topic, and a copy of
// a signed command is what every copy is: a repeat, which is not charged (G1).
package signing

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Header is the name of the Kafka header that carries a signature. Its value is
// "v1:<key id>:<HMAC in hex>".
const Header = "settleonce-signature"

// Everyone is what a key names instead of callers when it may speak for all: the
// HTTP edge's, which knows its callers by their credentials.
const Everyone = "*"

const (
	version = "v1"
	// label keeps the MAC apart from any other use of the same secret.
	label = "settleonce-command-v1\n"
	// minSecret is the size of the hash: a shorter secret is weaker than it.
	minSecret = sha256.Size
)

// Key signs commands of some callers.
type Key struct {
	// ID names the key in signatures: letters, digits, '.', '_' and '-'.
	ID string
	// Callers may be spoken for; Everyone stands for all.
	Callers []string
	// Secret is at least 32 random bytes.
	Secret []byte
}

// String shows everything but the secret.
func (k Key) String() string { return k.ID + " for " + strings.Join(k.Callers, "+") }

// GoString keeps the secret out of %#v as well.
func (k Key) GoString() string { return "signing.Key{" + k.String() + "}" }

// NewKey makes a key with a fresh secret.
func NewKey(id string, callers ...string) (Key, error) {
	k := Key{ID: id, Callers: callers, Secret: make([]byte, minSecret)}
	if _, err := rand.Read(k.Secret); err != nil {
		return Key{}, fmt.Errorf("make a signing secret: %w", err)
	}
	return k, k.Validate()
}

// Validate says what is wrong with a key, in a sentence without the secret.
func (k Key) Validate() error {
	switch {
	case !word(k.ID):
		return fmt.Errorf("the id %q of a signing key is not 1 to 64 letters, digits, dots, dashes and underscores: choose another", k.ID)
	case len(k.Secret) < minSecret:
		return fmt.Errorf("the secret of signing key %s has %d bytes: make one of 32 or more with `openssl rand -hex 32`", k.ID, len(k.Secret))
	case len(k.Callers) == 0 || slices.Contains(k.Callers, ""):
		return fmt.Errorf("signing key %s names no caller: write the callers it may speak for, joined by +", k.ID)
	}
	return nil
}

// Line is the key as a line of a file of keys. It contains the secret.
func (k Key) Line() string {
	return k.ID + " " + strings.Join(k.Callers, "+") + " " + hex.EncodeToString(k.Secret)
}

// SpeaksFor reports whether the key may sign commands of a caller.
func (k Key) SpeaksFor(caller string) bool {
	return slices.Contains(k.Callers, caller) || slices.Contains(k.Callers, Everyone)
}

// Sign returns the value of the header for a record.
func (k Key) Sign(key, value []byte) string {
	return version + ":" + k.ID + ":" + hex.EncodeToString(k.mac(key, value))
}

// mac is over label, key, newline and value. The key of a command is a UUID, so
// no newline in it can move the border; the consumer checks that first.
func (k Key) mac(key, value []byte) []byte {
	h := hmac.New(sha256.New, k.Secret)
	h.Write([]byte(label))
	h.Write(key)
	h.Write([]byte{'\n'})
	h.Write(value)
	return h.Sum(nil)
}

// Ring holds the keys that count, by id. Several may speak for one caller, so
// that keys are changed without a gap.
type Ring map[string]Key

// Parse reads a file of keys: one per line, "id callers secret", the callers
// joined by + and the secret in hex. Empty lines and those with # are left out.
// Errors name the line and never quote a secret.
func Parse(text string) (Ring, error) {
	ring := Ring{}
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return nil, fmt.Errorf("line %d has %d words: write id, callers and secret", i+1, len(fields))
		}
		secret, err := hex.DecodeString(fields[2])
		if err != nil {
			return nil, fmt.Errorf("line %d: the secret is not hex: make one with `openssl rand -hex 32`", i+1)
		}
		k := Key{ID: fields[0], Callers: strings.Split(fields[1], "+"), Secret: secret}
		if err := k.Validate(); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		if _, twice := ring[k.ID]; twice {
			return nil, fmt.Errorf("line %d: the id %s is there twice: give each key its own", i+1, k.ID)
		}
		ring[k.ID] = k
	}
	return ring, nil
}

// ErrNone says that there is no signature.
var ErrNone = errors.New("the command carries no signature")

// Verify checks a record's signature for a caller. The error is a sentence on
// what is wrong; without a signature it is ErrNone. What is compared with a secret
// is compared in constant time.
func (r Ring) Verify(caller string, key, value []byte, signature string) error {
	if signature == "" {
		return ErrNone
	}
	v, rest, _ := strings.Cut(signature, ":")
	id, sum, found := strings.Cut(rest, ":")
	if v != version || !found || !word(id) {
		return errors.New("the signature is not of the form v1:<key id>:<HMAC in hex>")
	}
	given, err := hex.DecodeString(sum)
	if err != nil {
		return errors.New("the signature's HMAC is not hex")
	}
	k, known := r[id]
	switch {
	case !known:
		return fmt.Errorf("the signature names key %s, which is not known here", id)
	case !hmac.Equal(given, k.mac(key, value)):
		return fmt.Errorf("the signature by key %s does not match key and value of the record", id)
	case !k.SpeaksFor(caller):
		return fmt.Errorf("key %s may not speak for caller %s", id, caller)
	}
	return nil
}

// word reports whether a text is fit for an id: short, and without what separates
// the parts of lines and headers.
func word(text string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	return text != "" && len(text) <= 64 && strings.Trim(text, allowed) == ""
}

package producer

import (
	"errors"
	"fmt"

	"github.com/settleonce/settleonce/internal/callers/signing"
	"github.com/settleonce/settleonce/internal/kafka"
)

// SigningKey proves to the consumer who wrote a command (G12): with it, each
// published command carries an HMAC-SHA256 over its key and its value. The zero
// value signs nothing. It never shows the secret when it is printed.
//
// The same command has the same signature each time it is published. To change
// keys, give the consumer the new one beside the old one first.
type SigningKey struct {
	// ID is the name under which the consumer knows the key.
	ID string
	// Secret is the same 32 random bytes or more that the consumer has.
	Secret []byte
}

// ParseSigningKey reads a line "id callers secret", as `settleonce callers
// signing-key` prints it. The error never quotes the secret.
func ParseSigningKey(line string) (SigningKey, error) {
	ring, err := signing.Parse(line)
	if err != nil {
		return SigningKey{}, fmt.Errorf("read the signing key: %w", err)
	}
	if len(ring) != 1 {
		return SigningKey{}, fmt.Errorf("read the signing key: there are %d, give one", len(ring))
	}
	for _, k := range ring {
		return SigningKey{ID: k.ID, Secret: k.Secret}, nil
	}
	return SigningKey{}, errors.New("read the signing key: there is none")
}

// String shows the id, never the secret.
func (k SigningKey) String() string { return k.ID }

// GoString keeps the secret out of %#v as well.
func (k SigningKey) GoString() string { return "producer.SigningKey{" + k.ID + "}" }

// MarshalText keeps the secret out of JSON and logs.
func (k SigningKey) MarshalText() ([]byte, error) { return []byte(k.ID), nil }

// set reports whether commands are to be signed.
func (k SigningKey) set() bool { return k.ID != "" || len(k.Secret) > 0 }

func (k SigningKey) key() signing.Key {
	return signing.Key{ID: k.ID, Callers: []string{signing.Everyone}, Secret: k.Secret}
}

// validate reports what cannot work.
func (k SigningKey) validate() error {
	if !k.set() {
		return nil
	}
	return k.key().Validate()
}

// sign adds the signature to a message, where there is a key.
func (k SigningKey) sign(m *kafka.Message) {
	if k.set() {
		m.Headers = append(m.Headers, kafka.Header{Key: signing.Header, Value: []byte(k.key().Sign(m.Key, m.Value))})
	}
}

package callers

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"fmt"
	"strings"
)

const (
	keyPrefix = "so_"
	idBytes   = 10
	// secretBytes is the entropy that makes a fast hash safe.
	secretBytes = 32
	// maxBearer bounds what is looked at: a key has 72 characters.
	maxBearer = 200
)

// keyText is base32 without padding, in small letters: no character that a shell
// or a header would mind, and none that separates the parts.
var keyText = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// newKey makes a key: what its owner is shown once, its id, and the hash to keep.
func newKey() (bearer, id string, hash []byte, err error) {
	random := make([]byte, idBytes+secretBytes)
	if _, err := rand.Read(random); err != nil {
		return "", "", nil, fmt.Errorf("make a key: %w", err)
	}
	id, secret := keyText.EncodeToString(random[:idBytes]), keyText.EncodeToString(random[idBytes:])
	return keyPrefix + id + "_" + secret, id, hashOf(secret), nil
}

func hashOf(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

// parseBearer splits a key; ok is false for what cannot be one.
func parseBearer(bearer string) (id, secret string, ok bool) {
	if len(bearer) > maxBearer {
		return "", "", false
	}
	rest, ok := strings.CutPrefix(bearer, keyPrefix)
	if !ok {
		return "", "", false
	}
	id, secret, ok = strings.Cut(rest, "_")
	return id, secret, ok && id != "" && secret != ""
}

// matches compares in constant time (P18): how long it takes does not tell how
// much of a guess was right.
func matches(hash []byte, secret string) bool {
	return subtle.ConstantTimeCompare(hash, hashOf(secret)) == 1
}

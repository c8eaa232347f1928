package channel

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// DefaultCallbackAge is how old, or how far in the future, a signature may be.
const DefaultCallbackAge = 5 * time.Minute

// maxSignatures bounds the work that one header can ask for.
const maxSignatures = 16

// CallbackSigning verifies signatures of the form t=1764496800,v1=5257a8…: the
// hexadecimal HMAC-SHA-256 of the time, a dot and the body, as several providers
// make them. The time is signed too, so an old callback cannot be made young.
type CallbackSigning struct {
	// Secrets are all that are valid now: two while a secret is rotated. Empty
	// ones are left out; with none, nothing is accepted.
	Secrets []string
	// MaxAge bounds the time between signature and arrival, in both directions.
	// Defaults to 5 minutes.
	MaxAge time.Duration
}

// Verify checks one signature header. It returns ErrNoCallbackSecret,
// ErrCallbackSignature or ErrCallbackAge. The age is judged after the signature,
// so that a stranger learns nothing from it, and all comparisons take the same
// time wherever the texts differ (P21).
func (s CallbackSigning) Verify(header string, body []byte, now time.Time) error {
	at, signatures := readSignature(header)
	known, valid := false, false
	for _, secret := range s.Secrets {
		if secret == "" {
			continue
		}
		known = true
		want := signature(secret, at, body)
		for _, got := range signatures {
			valid = hmac.Equal(want, got) || valid
		}
	}
	switch {
	case !known:
		return ErrNoCallbackSecret
	case !valid:
		return ErrCallbackSignature
	}
	return s.judgeAge(at, now)
}

func (s CallbackSigning) judgeAge(at string, now time.Time) error {
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return ErrCallbackSignature
	}
	limit := s.MaxAge
	if limit <= 0 {
		limit = DefaultCallbackAge
	}
	if age := now.Sub(time.Unix(seconds, 0)); age > limit || age < -limit {
		return ErrCallbackAge
	}
	return nil
}

// readSignature takes the header apart: the time as it was written, since that
// is what was signed, and every signature of version 1.
func readSignature(header string) (string, [][]byte) {
	at := ""
	var signatures [][]byte
	for part := range strings.SplitSeq(header, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch {
		case name == "t" && at == "":
			at = value
		case name == "v1" && len(signatures) < maxSignatures:
			if sum, err := hex.DecodeString(value); err == nil {
				signatures = append(signatures, sum)
			}
		}
	}
	return at, signatures
}

func signature(secret, at string, body []byte) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(at))
	mac.Write([]byte{'.'})
	mac.Write(body)
	return mac.Sum(nil)
}

// SignCallback returns the header that CallbackSigning verifies, for simulators
// and tests.
func SignCallback(secret string, at time.Time, body []byte) string {
	t := strconv.FormatInt(at.Unix(), 10)
	return "t=" + t + ",v1=" + hex.EncodeToString(signature(secret, t, body))
}

// plainText reports whether a text fits a database and a bounded column.
func plainText(text string) bool {
	return len(text) <= maxCallbackText && utf8.ValidString(text) && strings.IndexByte(text, 0) < 0
}

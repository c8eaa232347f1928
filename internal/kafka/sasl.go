package kafka

import (
	"errors"
	"fmt"

	"github.com/rs/zerolog"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

// The SASL mechanisms that SASL.Mechanism may name.
const (
	MechanismPlain       = "PLAIN"
	MechanismScramSHA256 = "SCRAM-SHA-256"
	MechanismScramSHA512 = "SCRAM-SHA-512"
)

// SASL holds the credentials for the brokers. The zero value means no
// authentication. Its String and log forms never show the password.
type SASL struct {
	// Mechanism is "", PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
	Mechanism string
	// Username and Password are required with a mechanism, refused without one.
	Username, Password string
}

// Validate reports what is missing or unknown, in a sentence that says what to
// change.
func (s SASL) Validate() error {
	switch s.Mechanism {
	case "":
		if s.Username != "" || s.Password != "" {
			return errors.New("kafka SASL: credentials without a mechanism, set it to PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512")
		}
		return nil
	case MechanismPlain, MechanismScramSHA256, MechanismScramSHA512:
	default:
		return fmt.Errorf("kafka SASL: mechanism %q is unknown, use PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512", s.Mechanism)
	}
	if s.Username == "" {
		return fmt.Errorf("kafka SASL: mechanism %s needs a username", s.Mechanism)
	}
	if s.Password == "" {
		return fmt.Errorf("kafka SASL: mechanism %s needs a password", s.Mechanism)
	}
	return nil
}

// String shows mechanism and user, never the password.
func (s SASL) String() string {
	if s.Mechanism == "" {
		return "none"
	}
	return s.Mechanism + " as " + s.Username
}

// GoString keeps the password out of %#v as well.
func (s SASL) GoString() string { return "kafka.SASL{" + s.String() + "}" }

// MarshalZerologObject logs mechanism and user, never the password.
func (s SASL) MarshalZerologObject(e *zerolog.Event) {
	e.Str("mechanism", s.Mechanism).Str("username", s.Username)
}

func (s SASL) mechanism() (sasl.Mechanism, error) {
	switch s.Mechanism {
	case "":
		return nil, nil //nolint:nilnil // no mechanism is how the library spells "no authentication"
	case MechanismPlain:
		return plain.Mechanism{Username: s.Username, Password: s.Password}, nil
	case MechanismScramSHA256:
		return scramMechanism(scram.SHA256, s)
	default:
		return scramMechanism(scram.SHA512, s)
	}
}

func scramMechanism(algo scram.Algorithm, s SASL) (sasl.Mechanism, error) {
	m, err := scram.Mechanism(algo, s.Username, s.Password)
	if err != nil {
		return nil, fmt.Errorf("prepare kafka SASL %s credentials: %w", s.Mechanism, err)
	}
	return m, nil
}

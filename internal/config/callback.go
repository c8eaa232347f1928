package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/settleonce/settleonce/channel"
)

// minCallbackSecret is the length below which a secret can be guessed.
const minCallbackSecret = 16

// CallbackSigning returns what callbacks of the channel are verified with. It
// reads the file of secrets, and contains secrets. Without any, nothing is
// accepted.
func (c *Channel) CallbackSigning() (channel.CallbackSigning, error) {
	secrets := c.CallbackSecrets
	if c.CallbackSecretFile != "" {
		if len(secrets) > 0 {
			return channel.CallbackSigning{}, fmt.Errorf("channel %s: callback-secret and callback-secret-file are both set: keep one", c.Name)
		}
		var err error
		if secrets, err = readSecretLines("callback-secret-file", c.CallbackSecretFile); err != nil {
			return channel.CallbackSigning{}, fmt.Errorf("channel %s: %w", c.Name, err)
		}
	}
	for _, secret := range secrets {
		if len(secret) < minCallbackSecret {
			return channel.CallbackSigning{}, fmt.Errorf("channel %s: a callback secret has fewer than %d characters: make a longer one, as with openssl rand -hex 32",
				c.Name, minCallbackSecret)
		}
	}
	return channel.CallbackSigning{Secrets: secrets, MaxAge: c.CallbackMaxAge}, nil
}

// CallbackKey is the secret that the simulator signs with; empty where it sends
// no callbacks. It reads the file.
func (s *Sim) CallbackKey() (string, error) {
	switch {
	case s.CallbackURL == "":
		return "", nil
	case s.CallbackSecretFile == "":
		return s.CallbackSecret, nil
	case s.CallbackSecret != "":
		return "", errors.New("sim-callback-secret and sim-callback-secret-file are both set: keep one")
	}
	lines, err := readSecretLines("sim-callback-secret-file", s.CallbackSecretFile)
	if err != nil {
		return "", err
	}
	return lines[0], nil
}

// readSecretLines reads a file of one secret a line; empty lines are left out.
func readSecretLines(name, path string) ([]string, error) {
	var text string
	if err := readSecret(name, path, &text); err != nil {
		return nil, err
	}
	var secrets []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			secrets = append(secrets, line)
		}
	}
	if len(secrets) == 0 {
		return nil, fmt.Errorf("%s: %s holds no secret, write one a line", name, path)
	}
	return secrets, nil
}

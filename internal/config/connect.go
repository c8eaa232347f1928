package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
)

// TLSConfig returns how to encrypt connections to the brokers, nil for plain
// TCP. It reads the certificate files.
func (k *Kafka) TLSConfig() (*tls.Config, error) {
	if !k.TLS {
		return nil, nil //nolint:nilnil // nil is how crypto/tls and its users spell "no TLS"
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: k.TLSServerName}
	if k.TLSCA != "" {
		pem, err := os.ReadFile(k.TLSCA)
		if err != nil {
			return nil, fmt.Errorf("kafka-tls-ca: the file cannot be read, check path and rights: %w", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("kafka-tls-ca: %s holds no certificate, give it one in PEM form", k.TLSCA)
		}
	}
	if k.TLSCert != "" {
		pair, err := tls.LoadX509KeyPair(k.TLSCert, k.TLSKey)
		if err != nil {
			return nil, fmt.Errorf("kafka-tls-cert and kafka-tls-key: they are no pair of PEM files, check both: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// ConnString returns the database address with the other settings worked in:
// the password from its file, sslmode and certificates. It contains secrets.
func (p *Postgres) ConnString() (string, error) {
	params := [][2]string{
		{"sslmode", p.SSLMode}, {"sslrootcert", p.TLSCA}, {"sslcert", p.TLSCert}, {"sslkey", p.TLSKey},
	}
	var password string
	if p.PasswordFile != "" {
		if err := readSecret("postgres-password-file", p.PasswordFile, &password); err != nil {
			return "", err
		}
	}
	if strings.Contains(p.DSN, "://") {
		return urlDSN(p.DSN, password, params)
	}
	return keywordPairs(p.DSN, password, params), nil
}

func urlDSN(dsn, password string, params [][2]string) (string, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		// The parser's own error repeats the address, and with it the password.
		return "", errors.New("postgres-dsn is not a URL: write it like postgres://user@host:5432/settleonce and escape special characters")
	}
	if password != "" {
		u.User = url.UserPassword(u.User.Username(), password)
	}
	query := u.Query()
	for _, p := range params {
		if p[1] != "" {
			query.Set(p[0], p[1])
		}
	}
	u.RawQuery = query.Encode()
	return u.String(), nil
}

var keywordQuoter = strings.NewReplacer(`\`, `\\`, `'`, `\'`)

// keywordPairs appends: of a repeated keyword the last one counts.
func keywordPairs(dsn, password string, params [][2]string) string {
	var b strings.Builder
	b.WriteString(dsn)
	for _, p := range append(params, [2]string{"password", password}) {
		if p[1] != "" {
			fmt.Fprintf(&b, " %s='%s'", p[0], keywordQuoter.Replace(p[1]))
		}
	}
	return b.String()
}

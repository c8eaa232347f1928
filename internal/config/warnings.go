package config

import (
	"net"
	"net/url"
	"slices"
	"strings"
)

// Warnings are settings that work and still deserve a word at every start, one
// sentence each.
func (c *Config) Warnings() []string {
	var warnings []string
	add := func(when bool, sentence string) {
		if when {
			warnings = append(warnings, sentence)
		}
	}
	add(c.Kafka.SASLMechanism == "PLAIN" && !c.Kafka.TLS && !allLocal(c.Kafka.Brokers),
		"kafka-sasl-mechanism is PLAIN without kafka-tls: the password crosses the network readable, switch kafka-tls on")
	add(!c.Postgres.encrypted(),
		"postgres connections to another machine are not verified: set postgres-sslmode to verify-full and postgres-tls-ca")
	add(c.Postgres.AllowUnsafeDurability,
		"postgres-allow-unsafe-durability is on: a crash of the database can lose claims, and a lost claim is a second charge")
	add(c.Topics.Replication < 3,
		"replication is below 3: an acknowledged command can be lost with one broker, use 3 brokers and set it to 3")
	add(c.Callers.Anyone(),
		"callers is empty: every producer that may write to the command topic may charge as any caller, list the callers")
	return warnings
}

// encrypted reports whether the server's certificate is checked, or the way to
// it does not leave the machine.
func (p *Postgres) encrypted() bool {
	if p.SSLMode == "verify-full" || strings.Contains(p.DSN, "verify-full") {
		return true
	}
	if u, err := url.Parse(p.DSN); err == nil && u.Scheme != "" {
		return areLocal(u.Host) && areLocal(u.Query().Get("host"))
	}
	for field := range strings.FieldsSeq(p.DSN) {
		if host, ok := strings.CutPrefix(field, "host="); ok {
			return areLocal(strings.Trim(host, "'"))
		}
	}
	return true
}

// areLocal looks at every host of an address: with a standby there are several,
// with commas between them.
func areLocal(hosts string) bool {
	for host := range strings.SplitSeq(hosts, ",") {
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if !isLocal(strings.Trim(host, "[]")) {
			return false
		}
	}
	return true
}

func allLocal(addresses []string) bool {
	return !slices.ContainsFunc(addresses, func(a string) bool {
		host, _, err := net.SplitHostPort(a)
		return err != nil || !isLocal(host)
	})
}

// isLocal takes an empty host and a socket's folder for this machine.
func isLocal(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || host == "localhost" || strings.HasPrefix(host, "/") || (ip != nil && ip.IsLoopback())
}

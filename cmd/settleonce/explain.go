package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// explainPostgres adds the next step to a fault of the database.
func explainPostgres(err error) error {
	var server *pgconn.PgError
	var dial *net.OpError
	var parse *pgconn.ParseConfigError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &parse):
		return asUsage(fmt.Errorf("postgres-dsn or a postgres-tls setting cannot be used, correct it: %w", err))
	case errors.As(err, &server):
		return fmt.Errorf("%w: %s", err, postgresStep(server.Code))
	case isCertificateFault(err):
		return fmt.Errorf("%w: check postgres-tls-ca, and that postgres-dsn uses the name in the server's certificate", err)
	case strings.Contains(err.Error(), "server refused TLS"):
		return fmt.Errorf("%w: switch ssl on in the server, or set postgres-sslmode to disable on one machine", err)
	case errors.As(err, &dial):
		return fmt.Errorf("%w: check that Postgres runs there and postgres-dsn is right", err)
	}
	return err
}

func isCertificateFault(err error) bool {
	var verification *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var hostname x509.HostnameError
	return errors.As(err, &verification) || errors.As(err, &authority) || errors.As(err, &hostname)
}

// explainKafka adds the next step to a broker that cannot be reached. Other
// faults carry theirs already.
func explainKafka(err error) error {
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return fmt.Errorf("%w: check that Kafka runs there and kafka-brokers is right", err)
	}
	return err
}

// postgresStep is the next step for an error code of the server.
func postgresStep(code string) string {
	switch code {
	case "28P01", "28000":
		return "check user and password, or pg_hba.conf on the server"
	case "3D000":
		return "create the database first, or correct its name in postgres-dsn"
	case "42501":
		return "grant this user the right, or use the owner of schema settleonce"
	case "42P01", "3F000":
		return "run `settleonce migrate` first"
	case "53300":
		return "lower postgres-pool-size or raise the server's max_connections"
	default:
		return "see the server's log"
	}
}

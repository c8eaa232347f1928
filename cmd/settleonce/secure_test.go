package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/settleonce/settleonce/internal/devstack"
)

// certificates are a self-signed certificate for 127.0.0.1, its key, and the
// password of a user, in files.
type certificates struct{ dir, cert, key, password string }

func makeCertificates(t *testing.T) certificates {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	rawKey, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	dir, err := devstack.TempDir("settleonce-tls-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	c := certificates{
		dir: dir, cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem"), password: filepath.Join(dir, "password"),
	}
	require.NoError(t, os.WriteFile(c.cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(c.key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: rawKey}), 0o600))
	require.NoError(t, os.WriteFile(c.password, []byte("s3cr3t\n"), 0o600))
	return c
}

// startSecureKafka is a broker that wants TLS and SCRAM.
func startSecureKafka(t *testing.T, c certificates) string {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	require.NoError(t, err)
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "app", "s3cr3t"),
		kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	return strings.Join(cluster.ListenAddrs(), ",")
}

func TestKafkaWithTLSAndSCRAM(t *testing.T) {
	t.Parallel()
	c := makeCertificates(t)
	env := []string{
		"SETTLEONCE_KAFKA_BROKERS=" + startSecureKafka(t, c), "SETTLEONCE_KAFKA_TLS=true", "SETTLEONCE_KAFKA_TLS_CA=" + c.cert,
		"SETTLEONCE_KAFKA_SASL_MECHANISM=SCRAM-SHA-512", "SETTLEONCE_KAFKA_SASL_USERNAME=app",
		"SETTLEONCE_KAFKA_SASL_PASSWORD_FILE=" + c.password, "SETTLEONCE_REPLICATION=1",
	}
	r := runCommand(t, env, "topics", "check")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stdout, "does not exist: run `settleonce topics ensure`")
	r = runCommand(t, env, "topics", "ensure", "-o", "json")
	requireOK(t, r)
	require.Contains(t, r.stdout, "payment.requery.16s")
	requireOK(t, runCommand(t, env, "topics", "check"))
	requireOK(t, runCommand(t, env, "publish", "--order", "order-1", "--amount", "1999"))

	require.NoError(t, os.WriteFile(c.password, []byte("wrong-one\n"), 0o600))
	for _, command := range [][]string{{"topics", "check"}, {"publish", "--order", "o", "--amount", "1"}} {
		r = runCommand(t, env, command...)
		require.Equal(t, exitFailed, r.code)
		lines := strings.Split(strings.TrimSpace(r.stderr), "\n")
		require.Contains(t, lines[len(lines)-1], `check the SASL username, password and mechanism`)
		require.NotContains(t, r.stderr, "wrong-one")
	}
	r = runCommand(t, env, "topics", "check", "--kafka-tls-ca", "")
	require.Contains(t, r.stderr, "certificate is not trusted")
	r = runCommand(t, env, "topics", "check", "--kafka-tls-ca", c.key)
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.stderr, "holds no certificate")
}

// startSecurePostgres returns the address of a server that offers TLS.
func startSecurePostgres(t *testing.T, c certificates) string {
	t.Helper()
	allowServer(t, c)
	server, err := devstack.StartPostgres(t.Context(), devstack.PostgresConfig{
		DataDir: filepath.Join(c.dir, "data"), Fast: true,
		Settings: map[string]string{"ssl": "on", "ssl_cert_file": c.cert, "ssl_key_file": c.key},
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), stopTimeout)
		defer cancel()
		require.NoError(t, server.Stop(ctx))
	})
	return strings.Replace(server.DSN("postgres"), "sslmode=disable", "", 1)
}

// allowServer lets Postgres's own user read certificate and key. It takes a key
// of root's that its group may read.
func allowServer(t *testing.T, c certificates) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		gid, err := strconv.Atoi(u.Gid)
		require.NoError(t, err)
		for _, file := range []string{c.cert, c.key} {
			require.NoError(t, os.Chown(file, 0, gid))
			require.NoError(t, os.Chmod(file, 0o640))
		}
		return
	}
}

func TestPostgresWithTLS(t *testing.T) {
	t.Parallel()
	c, other := makeCertificates(t), makeCertificates(t)
	dsn := startSecurePostgres(t, c)
	env := []string{"SETTLEONCE_POSTGRES_DSN=" + dsn, "SETTLEONCE_POSTGRES_SSLMODE=verify-full", "SETTLEONCE_POSTGRES_TLS_CA=" + c.cert}
	requireOK(t, runCommand(t, env, "migrate"))
	r := runCommand(t, env, "recover")
	requireOK(t, r)
	r = runCommand(t, env, "migrate", "--postgres-tls-ca", other.cert)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "check postgres-tls-ca")
	require.NotContains(t, r.stderr, "faults")
	// A password in the file wins over the one in the address, and is refused here.
	r = runCommand(t, env, "recover", "--postgres-password-file", c.password)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "check user and password")
	require.NotContains(t, r.stderr, "s3cr3t")
}

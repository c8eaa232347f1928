package kafka_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/settleonce/settleonce/internal/kafka"
)

// Every mechanism, with and without TLS, through every kind of connection.
func TestAuthentication(t *testing.T) {
	t.Parallel()
	server, roots := certificate(t)
	for _, encrypted := range []bool{false, true} {
		opts := []kfake.Opt{
			kfake.EnableSASL(), kfake.SeedTopics(1, "t"), kfake.Superuser("PLAIN", "plain", "secret-1"),
			kfake.Superuser("SCRAM-SHA-256", "scram256", "secret-2"), kfake.Superuser("SCRAM-SHA-512", "scram512", "secret-3"),
		}
		var clientTLS *tls.Config
		if encrypted {
			opts = append(opts, kfake.TLS(server))
			clientTLS = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
		}
		brokers := startKfake(t, opts...).ListenAddrs()
		for _, sasl := range []kafka.SASL{
			{Mechanism: kafka.MechanismPlain, Username: "plain", Password: "secret-1"},
			{Mechanism: kafka.MechanismScramSHA256, Username: "scram256", Password: "secret-2"},
			{Mechanism: kafka.MechanismScramSHA512, Username: "scram512", Password: "secret-3"},
		} {
			t.Run(fmt.Sprintf("%s tls=%t", sasl.Mechanism, encrypted), func(t *testing.T) {
				t.Parallel()
				testAuthentication(t, kafka.Config{Brokers: brokers, SASL: sasl, TLS: clientTLS})
			})
		}
	}
}

func testAuthentication(t *testing.T, cfg kafka.Config) {
	t.Helper()
	client := newClient(t, cfg)
	require.NoError(t, client.Ping(t.Context()))
	p, err := client.NewFencedProducer(t.Context(), cfg.SASL.Username)
	require.NoError(t, err)
	batch := kafka.FencedBatch{Producer: p, Messages: []kafka.Message{{Topic: "t", Key: []byte("k"), Value: []byte("v")}}}
	require.NoError(t, client.PublishFenced(t.Context(), []kafka.FencedBatch{batch})[0].Err())
	got := make(chan *kafka.Delivery, 10)
	consumer, err := client.NewConsumer(kafka.ConsumerConfig{Group: cfg.SASL.Username, Topics: []string{"t"}, Handler: handTo(got)})
	require.NoError(t, err)
	run(t, consumer)
	require.Equal(t, "v", string((<-got).Value))

	cfg.SASL.Password += "x"
	wrong := newClient(t, cfg)
	err = wrong.Ping(t.Context())
	require.ErrorContains(t, err, "check the SASL username, password and mechanism")
	require.ErrorContains(t, err, cfg.SASL.Username)
	require.NotContains(t, err.Error(), cfg.SASL.Password)
	_, err = wrong.DescribeTopics(t.Context(), []string{"t"})
	require.ErrorContains(t, err, "check the SASL username, password and mechanism")
}

// A topic that may not be seen is not said to be missing, and what is to be
// granted is named.
func TestMissingRightsAreNamed(t *testing.T) {
	t.Parallel()
	describe := kfake.ACL{
		Resource: kmsg.ACLResourceTypeTopic, Name: "seen", Pattern: kmsg.ACLResourcePatternTypeLiteral,
		Operation: kmsg.ACLOperationDescribe, Allow: true,
	}
	cluster := startKfake(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.SeedTopics(1, "seen", "hidden"),
		kfake.Superuser("PLAIN", "admin", "secret"), kfake.User("PLAIN", "reader", "secret", describe))
	client := newClient(t, kafka.Config{
		Brokers: cluster.ListenAddrs(), SASL: kafka.SASL{Mechanism: kafka.MechanismPlain, Username: "reader", Password: "secret"},
	})
	found, err := client.DescribeTopics(t.Context(), []string{"seen", "hidden"})
	require.NoError(t, err)
	require.True(t, found[0].Exists)
	require.Equal(t, kafka.TopicDescription{Name: "hidden", Hidden: true}, found[1])

	consumer, err := client.NewConsumer(kafka.ConsumerConfig{Group: "g", Topics: []string{"hidden"}, Handler: handTo(nil)})
	require.NoError(t, err)
	err = consumer.Run(t.Context())
	require.ErrorIs(t, err, kafka.ErrUnauthorized)
	require.ErrorContains(t, err, "topic hidden, grant Describe on it")

	publisher, err := client.NewPublisher(kafka.PublisherConfig{})
	require.NoError(t, err)
	err = publisher.Publish(t.Context(), kafka.Message{Topic: "seen", Value: []byte("v")})
	require.ErrorIs(t, err, kafka.ErrUnauthorized)
	require.ErrorContains(t, err, "grant Write on the topic")
	require.NotContains(t, err.Error(), "transactional")
	_, err = client.NewFencedProducer(t.Context(), "shard-1")
	require.ErrorContains(t, err, `transactional id "shard-1"`)
}

// Settings that do not match the listener are explained.
func TestPingExplains(t *testing.T) {
	t.Parallel()
	server, roots := certificate(t)
	sasl := kafka.SASL{Mechanism: kafka.MechanismPlain, Username: "admin", Password: "admin"}
	plain := startKfake(t, kfake.EnableSASL()).ListenAddrs()
	secured := startKfake(t, kfake.TLS(server)).ListenAddrs()
	for _, c := range []struct {
		name string
		cfg  kafka.Config
		want string
	}{
		{"no credentials", kafka.Config{Brokers: plain}, "may expect TLS or SASL"},
		{"TLS to a plain port", kafka.Config{Brokers: plain, TLS: &tls.Config{MinVersion: tls.VersionTLS12}, SASL: sasl}, "TLS"},
		{"plain to a TLS port", kafka.Config{Brokers: secured}, "may expect TLS or SASL"},
		{"unknown authority", kafka.Config{Brokers: secured, TLS: &tls.Config{MinVersion: tls.VersionTLS12}}, "check the CA file"},
		{"wrong name", kafka.Config{Brokers: secured, TLS: &tls.Config{RootCAs: roots, ServerName: "other", MinVersion: tls.VersionTLS12}}, "host name"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			client, said := newClient(t, c.cfg), ""
			require.Eventually(t, func() bool { // a busy machine may not get to the handshake in time
				err := client.Ping(t.Context())
				said = fmt.Sprint(err)
				return err != nil && strings.Contains(said, c.want)
			}, 90*time.Second, time.Millisecond)
			require.Contains(t, said, c.want)
		})
	}
}

func TestSASLValidate(t *testing.T) {
	t.Parallel()
	require.NoError(t, kafka.SASL{}.Validate())
	require.NoError(t, kafka.SASL{Mechanism: "PLAIN", Username: "u", Password: "p"}.Validate())
	for want, s := range map[string]kafka.SASL{
		"without a mechanism": {Username: "u", Password: "p"},
		"is unknown":          {Mechanism: "plain", Username: "u", Password: "p"},
		"needs a username":    {Mechanism: "PLAIN", Password: "p"},
		"needs a password":    {Mechanism: "SCRAM-SHA-512", Username: "u"},
	} {
		require.ErrorContains(t, s.Validate(), want)
	}
}

func TestSASLHidesPassword(t *testing.T) {
	t.Parallel()
	s := kafka.SASL{Mechanism: "PLAIN", Username: "user", Password: "secret"}
	var log bytes.Buffer
	l := zerolog.New(&log)
	l.Info().Object("sasl", s).Msg("")
	for _, text := range []string{s.String(), fmt.Sprintf("%v %+v %#v", s, s, s), log.String()} {
		require.Contains(t, text, "user")
		require.NotContains(t, text, "secret")
	}
	require.Equal(t, "none", kafka.SASL{}.String())
}

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]kafka.Config{
		"at least one broker": {},
		"host:port":           {Brokers: []string{"localhost"}},
		"compression":         {Brokers: []string{"localhost:9092"}, Compression: "brotli"},
		"mechanism":           {Brokers: []string{"localhost:9092"}, SASL: kafka.SASL{Mechanism: "X"}},
	} {
		_, err := kafka.NewClient(cfg)
		require.ErrorContains(t, err, want)
	}
}

// certificate makes a self-signed one for 127.0.0.1.
func certificate(t *testing.T) (*tls.Config, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS12}, roots
}

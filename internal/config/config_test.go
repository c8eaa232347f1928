package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/internal/config"
)

func writeFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "settleonce.yaml")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func TestDefaultsAreValid(t *testing.T) {
	t.Parallel()
	l, err := config.Load(config.Input{})
	require.NoError(t, err)
	require.Equal(t, config.Default().Consumer, l.Config.Consumer)
	require.Equal(t, 336*time.Hour, l.Config.Consumer.Window)
	require.Equal(t, []string{"localhost:9092"}, l.Config.Kafka.Brokers)
	require.Equal(t, "sim http://localhost:8090", l.Config.Channels["sim"].Capabilities.Identity)
	for _, v := range l.Values() {
		require.Equal(t, "default", v.Source, v.Name)
	}
}

// One setting says that a provider has no lookup, or executes repeats: what is
// promised by default only together with it goes too; what somebody set does not.
func TestSwitchedOffCapabilitiesPromiseNothing(t *testing.T) {
	t.Parallel()
	l, err := config.Load(config.Input{Env: []string{"SETTLEONCE_CHANNEL_QUERY=false", "SETTLEONCE_CHANNEL_IDEMPOTENT_SUBMIT=false"}})
	require.NoError(t, err)
	c := l.Config.Channels["sim"].Capabilities
	require.False(t, c.PinsFailures || c.NotFoundIsProof)
	require.Zero(t, c.KeyMemory+c.VisibilityLag+c.QueryReach)
	_, err = config.Load(config.Input{Env: []string{"SETTLEONCE_CHANNEL_QUERY=false", "SETTLEONCE_CHANNEL_QUERY_REACH=1h"}})
	require.ErrorContains(t, err, "query-reach without query promises nothing: set them to undocumented or switch query on")
}

// Every default must parse: Default relies on it.
func TestEveryDefaultIsShownAsItIsWritten(t *testing.T) {
	t.Parallel()
	l, err := config.Load(config.Input{})
	require.NoError(t, err)
	for i, s := range config.Settings() {
		require.Equal(t, s.Shown(s.Default), l.Values()[i].Value, s.Name)
		require.NotEmpty(t, s.Doc, s.Name)
		require.NotEqual(t, config.FileSetting, s.Name)
	}
}

func TestPrecedence(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "lease: 40s\n")
	env := []string{"SETTLEONCE_LEASE=50s", "PATH=/bin"}
	flags := map[string]string{"lease": "60s"}
	cases := []struct {
		name, source string
		in           config.Input
		want         time.Duration
	}{
		{"default", "default", config.Input{}, 30 * time.Second},
		{"file", file + ":1", config.Input{File: file}, 40 * time.Second},
		{"variable", "SETTLEONCE_LEASE", config.Input{File: file, Env: env}, 50 * time.Second},
		{"flag", "flag", config.Input{File: file, Env: env, Flags: flags}, 60 * time.Second},
		{"file from variable", file + ":1", config.Input{Env: []string{"SETTLEONCE_CONFIG=" + file}}, 40 * time.Second},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l, err := config.Load(c.in)
			require.NoError(t, err)
			require.Equal(t, c.want, l.Config.Consumer.Lease)
			require.Equal(t, c.source, l.Source("lease"))
		})
	}
}

func TestFaultsAreSentences(t *testing.T) {
	t.Parallel()
	cases := []struct{ name, file, env, want string }{
		{
			name: "unknown variable", env: "SETTLEONCE_KAFKA_BROKER=x",
			want: "variable SETTLEONCE_KAFKA_BROKER is not known, did you mean SETTLEONCE_KAFKA_BROKERS",
		},
		{name: "unknown key", file: "a: 1\nleese: 3s\n", want: ":2: leese is not known, did you mean lease"},
		{name: "key twice", file: "lease: 30s\nlease: 40s\n", want: "lease is there twice: keep one"},
		{name: "not YAML", file: "lease: [", want: "is not YAML"},
		{name: "not a mapping", file: "- lease\n", want: "write it as lines of `name: value`"},
		{
			name: "not a duration", env: "SETTLEONCE_LEASE=soon",
			want: `lease: "soon" (from SETTLEONCE_LEASE) is not valid: write it as a duration, like 250ms, 30s or 336h`,
		},
		{name: "not a number", env: "SETTLEONCE_CLAIMERS=many", want: "write it as a whole number"},
		{name: "not a bool", env: "SETTLEONCE_PPROF=maybe", want: "write it as true or false"},
		{name: "not a promise", env: "SETTLEONCE_CHANNEL_KEY_MEMORY=long", want: "or forever, immediate or undocumented"},
		{name: "not pairs", env: "SETTLEONCE_CALLERS=shop", want: "caller=namespace"},
		{
			name: "lease and submit timeout", env: "SETTLEONCE_CHANNEL_SUBMIT_TIMEOUT=20s",
			want: "channel sim: lease is 30s: raise it to at least 40s, twice the submit timeout",
		},
		{name: "retention and window", env: "SETTLEONCE_WINDOW=24h", want: "raise window or lower commands-retention"},
		{name: "broker", env: "SETTLEONCE_KAFKA_BROKERS=kafka", want: `"kafka" is not an address: write it as host:port`},
		{name: "mechanism", env: "SETTLEONCE_KAFKA_SASL_MECHANISM=GSSAPI", want: "use PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512"},
		{name: "no password", env: "SETTLEONCE_KAFKA_SASL_MECHANISM=PLAIN", want: "set kafka-sasl-password-file"},
		{name: "no such secret", env: "SETTLEONCE_KAFKA_SASL_PASSWORD_FILE=/nowhere", want: "check path and rights"},
		{name: "unknown namespace", file: "callers: {shop: shop}\nrepay-named: [shap]\n", want: `no caller has namespace "shap": use one of shop`},
		{
			name: "caller of a topic", env: "SETTLEONCE_COMMAND_TOPICS=a=shop+cron", file: "callers: {shop: shop}\n",
			want: `command-topics: a carries caller "cron", which callers does not list`,
		},
		{name: "DSN", env: "SETTLEONCE_POSTGRES_DSN=db.example", want: "postgres-dsn is neither a postgres:// address nor key=value pairs"},
		{name: "other DSN", env: "SETTLEONCE_POSTGRES_DSN=mysql://u:p=x@db/x", want: "write it like postgres://settleonce@db:5432/settleonce"},
		{name: "pool", env: "SETTLEONCE_POSTGRES_POOL_SIZE=3", want: "use at least 14"},
		{name: "level", env: "SETTLEONCE_LOG_LEVEL=verbose", want: "use debug, info, warn or error"},
		{
			name: "channels twice", file: "channel-url: http://a\nchannels: {a: {type: sim, url: 'http://a'}}\n",
			want: "describe channels in one place",
		},
		{name: "channel key", file: "channels: {a: {type: sim, key_memory: 3h}}\n", want: "key_memory is not known, did you mean key-memory"},
		{
			name: "channel rule", file: "channels: {a: {type: sim, url: 'http://a', idempotent-submit: true}}\n",
			want: "channel a: idempotent-submit without key-memory",
		},
		{name: "channel type", file: "channels: {a: {url: 'http://a'}}\n", want: "channel a has no type: set type: sim"},
		{name: "no such file", env: "SETTLEONCE_CONFIG=/nowhere.yaml", want: "configuration file: it cannot be read"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			in := config.Input{Env: []string{c.env}}
			if c.file != "" {
				in.File = writeFile(t, c.file)
			}
			_, err := config.Load(in)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// Whoever asks whether a process is alive has no use for Kafka's settings: a
// fault there does not stop it.
func TestOnlyUsedSettingsAreJudged(t *testing.T) {
	t.Parallel()
	in := config.Input{
		File: writeFile(t, "lease: soon\nadmin-address: ':9000'\nchannels: {a: {kind: sim}}\n"),
		Env: []string{
			"SETTLEONCE_KAFKA_SASL_MECHANISM=GSSAPI", "SETTLEONCE_KAFKA_SASL_PASSWORD_FILE=/nowhere", "SETTLEONCE_POSTGRES_POOL_SIZE=2",
		},
		Used: []string{"admin-address", "postgres-pool-size"},
	}
	l, err := config.Load(in)
	require.NoError(t, err)
	require.Equal(t, ":9000", l.Config.Admin.Address)
	require.Equal(t, 2, l.Config.Postgres.PoolSize, "enough for one question")
	require.Equal(t, 30*time.Second, l.Config.Consumer.Lease)
	in.Used = append(in.Used, "relay-lease")
	_, err = config.Load(in)
	require.ErrorContains(t, err, "postgres-pool-size is 2: use at least 8")
	in.Used = []string{"channel-url"}
	_, err = config.Load(in)
	require.ErrorContains(t, err, "kind is not known")
	in.Used = nil
	_, err = config.Load(in)
	require.ErrorContains(t, err, "lease")
}

// A rule between two settings is not judged with a default in the place of one.
func TestRulesBetweenGroupsNeedBoth(t *testing.T) {
	t.Parallel()
	env := []string{
		"SETTLEONCE_COMMANDS_RETENTION=400h", "SETTLEONCE_WINDOW=500h", "SETTLEONCE_LEASE=60s", "SETTLEONCE_CHANNEL_SUBMIT_TIMEOUT=25s",
		"SETTLEONCE_STALL_TIMEOUT=3m",
	}
	for _, used := range [][]string{nil, {"commands-retention"}, {"window"}, {"lease", "stall-timeout"}, {"channel-submit-timeout"}} {
		_, err := config.Load(config.Input{Env: env, Used: used})
		require.NoError(t, err, used)
	}
}

func TestUnknownFlagNamesTheNearest(t *testing.T) {
	t.Parallel()
	_, err := config.Load(config.Input{Flags: map[string]string{"relay-lese": "3s"}})
	require.EqualError(t, err, "flag --relay-lese is not known, did you mean --relay-lease")
}

// A service named settleonce puts variables into every pod of its namespace.
func TestKubernetesServiceLinksAreNotOurs(t *testing.T) {
	t.Parallel()
	_, err := config.Load(config.Input{Env: []string{
		"SETTLEONCE_SERVICE_HOST=10.0.0.1", "SETTLEONCE_SERVICE_PORT=9464", "SETTLEONCE_SERVICE_PORT_ADMIN=9464",
		"SETTLEONCE_PORT=tcp://10.0.0.1:9464", "SETTLEONCE_PORT_9464_TCP_ADDR=10.0.0.1", "SETTLEONCE_CONSUMER_PORT_9464_TCP=tcp://x",
	}})
	require.NoError(t, err)
}

func TestStructuredValues(t *testing.T) {
	t.Parallel()
	file := writeFile(t, `
kafka-brokers: [a:1, b:2]
callers:
  shop: shop
  shop-cron: shop
repay-named: [shop]
channels:
  eu:
    type: sim
    url: http://sim:8090
    idempotent-submit: true
    key-memory: forever
    longest-execution: 10s
  plain:
    type: sim
    url: http://other:8090
`)
	l, err := config.Load(config.Input{File: file})
	require.NoError(t, err)
	c := l.Config
	require.Equal(t, []string{"a:1", "b:2"}, c.Kafka.Brokers)
	require.Equal(t, map[string]string{"shop": "shop", "shop-cron": "shop"}, c.Callers.Namespaces)
	require.Equal(t, []string{"shop"}, c.Callers.RepayNamed)
	require.Equal(t, channel.Forever, c.Channels["eu"].Capabilities.KeyMemory)
	require.Equal(t, 10*time.Second, c.Channels["eu"].Capabilities.LongestExecution)
	// Nothing is promised that is not written down.
	require.False(t, c.Channels["plain"].Capabilities.IdempotentSubmit)
	require.Zero(t, c.Channels["plain"].Capabilities.VisibilityLag)
	require.Equal(t, channel.DefaultSubmitTimeout, c.Channels["plain"].Capabilities.SubmitTimeout)
}

func TestSecretsAreNeverShown(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(secret, []byte("s3cr3t-file\n"), 0o600))
	dsns := []string{
		"postgres://app:s3cr3t-dsn@db/settleonce",
		"postgres://app@db/settleonce?password=s3cr3t-dsn",
		"host=db user=app password=s3cr3t-dsn dbname=settleonce",
		"host=db user=app password = 's3cr3t-dsn \\' x' dbname=settleonce",
		"PASSWORD=s3cr3t-dsn host=db",
		"postgres//app:s3cr3t-dsn@db",
		"postgres://app:s3cr3t-dsn%zz@db/x",
	}
	for _, dsn := range dsns {
		l, err := config.Load(config.Input{Env: []string{
			"SETTLEONCE_POSTGRES_DSN=" + dsn, "SETTLEONCE_KAFKA_SASL_PASSWORD_FILE=" + secret,
			"SETTLEONCE_KAFKA_SASL_MECHANISM=PLAIN", "SETTLEONCE_KAFKA_SASL_USERNAME=app", "SETTLEONCE_KAFKA_TLS=true",
		}})
		if dsn == "postgres//app:s3cr3t-dsn@db" {
			require.ErrorContains(t, err, "postgres-dsn is neither")
			require.NotContains(t, err.Error(), "s3cr3t")
			continue
		}
		require.NoError(t, err)
		require.Equal(t, "s3cr3t-file", l.Config.Kafka.SASLPassword)
		require.NotContains(t, fmt.Sprint(l.Values()), "s3cr3t")
	}
	l, err := config.Load(config.Input{Env: []string{"SETTLEONCE_POSTGRES_DSN=" + dsns[0]}})
	require.NoError(t, err)
	require.Contains(t, fmt.Sprint(l.Values()), "postgres://app:xxxxx@db/settleonce", "user and host help to find a mistake")
}

func TestConnString(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(secret, []byte("p'w/d\n"), 0o600))
	p := config.Postgres{DSN: "postgres://app:old@db:5432/x?sslmode=disable", PasswordFile: secret, SSLMode: "verify-full", TLSCA: "/ca.pem"}
	dsn, err := p.ConnString()
	require.NoError(t, err)
	require.Equal(t, "postgres://app:p%27w%2Fd@db:5432/x?sslmode=verify-full&sslrootcert=%2Fca.pem", dsn)

	p.DSN = "host=db user=app"
	dsn, err = p.ConnString()
	require.NoError(t, err)
	require.Equal(t, `host=db user=app sslmode='verify-full' sslrootcert='/ca.pem' password='p\'w/d'`, dsn)

	p.DSN = "postgres://app:s3cr3t%zz@db/x"
	_, err = p.ConnString()
	require.ErrorContains(t, err, "escape special characters")
	require.NotContains(t, err.Error(), "s3cr3t")
}

// A primary and its standbys, in both forms that libpq knows.
func TestConnStringOfSeveralHosts(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(secret, []byte("s3cr3t\n"), 0o600))
	for _, dsn := range []string{
		"postgres://app@db1:5432,db2:5433,db3:5434/x?target_session_attrs=read-write",
		"host=db1,db2,db3 port=5432,5433,5434 user=app dbname=x target_session_attrs=read-write",
	} {
		p := config.Postgres{DSN: dsn, PasswordFile: secret, SSLMode: "disable"}
		text, err := p.ConnString()
		require.NoError(t, err)
		c, err := pgconn.ParseConfig(text)
		require.NoError(t, err)
		require.Equal(t, "db1:5432 app s3cr3t x", fmt.Sprintf("%s:%d %s %s %s", c.Host, c.Port, c.User, c.Password, c.Database))
		require.Len(t, c.Fallbacks, 2)
		require.Equal(t, "db3:5434", fmt.Sprintf("%s:%d", c.Fallbacks[1].Host, c.Fallbacks[1].Port))
		require.NotNil(t, c.ValidateConnect)
	}
}

func TestDocumentationIsUpToDate(t *testing.T) {
	t.Parallel()
	const page = "../../docs/configuration.md"
	got, err := os.ReadFile(page)
	require.NoError(t, err, "write it: go run ./cmd/settleonce config --markdown > docs/configuration.md")
	require.Equal(t, config.Markdown(), string(got), "refresh it: go run ./cmd/settleonce config --markdown > docs/configuration.md")
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	cases := []struct {
		env  string
		want string
	}{
		{"SETTLEONCE_POSTGRES_DSN=postgres://app@db/x", "verify-full"},
		{"SETTLEONCE_POSTGRES_DSN=host=db user=app", "verify-full"},
		{"SETTLEONCE_POSTGRES_DSN=postgres://app@localhost:5432,db:5432/x", "verify-full"},
		{"SETTLEONCE_POSTGRES_DSN=host=localhost,db user=app", "verify-full"},
		{"SETTLEONCE_POSTGRES_ALLOW_UNSAFE_DURABILITY=true", "second charge"},
		{"SETTLEONCE_LEASE=30s", "list the callers"},
		{"SETTLEONCE_REPLICATION=1", "lost with one broker"},
	}
	for _, c := range cases {
		l, err := config.Load(config.Input{Env: []string{c.env}})
		require.NoError(t, err)
		require.Contains(t, fmt.Sprint(l.Config.Warnings()), c.want)
	}
	l, err := config.Load(config.Input{Env: []string{
		"SETTLEONCE_CALLERS=shop=shop", "SETTLEONCE_POSTGRES_DSN=postgres://app@db/x?sslmode=verify-full",
	}})
	require.NoError(t, err)
	require.Empty(t, l.Config.Warnings())
	l, err = config.Load(config.Input{Env: []string{
		"SETTLEONCE_CALLERS=shop=shop", "SETTLEONCE_POSTGRES_DSN=postgres://app@localhost:5432,127.0.0.1:5433/x",
	}})
	require.NoError(t, err)
	require.Empty(t, l.Config.Warnings(), "both are on this machine")
}

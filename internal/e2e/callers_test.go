package e2e_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/settleonce/settleonce/consumer"
	callertable "github.com/settleonce/settleonce/internal/callers"
	"github.com/settleonce/settleonce/internal/callers/signing"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/payment"
)

// keyFile is a file of signing keys that tests rewrite while it is read.
type keyFile struct {
	t    *testing.T
	path string
}

func newKeyFile(t *testing.T, keys ...signing.Key) keyFile {
	t.Helper()
	f := keyFile{t: t, path: filepath.Join(t.TempDir(), "keys")}
	f.write(keys...)
	return f
}

func (f keyFile) write(keys ...signing.Key) {
	f.t.Helper()
	var text []byte
	for _, k := range keys {
		text = append(text, k.Line()+"\n"...)
	}
	require.NoError(f.t, os.WriteFile(f.path, text, 0o600))
}

func signingKey(t *testing.T, id string, callers ...string) signing.Key {
	t.Helper()
	k, err := signing.NewKey(id, callers...)
	require.NoError(t, err)
	return k
}

// signed lets the consumers want signatures of some callers.
func signed(t *testing.T, f keyFile, required ...string) option {
	t.Helper()
	return func(set *settings) {
		set.consumer = func(_ *stack, cfg *consumer.Config) {
			signatures, err := callertable.NewSignatures(f.path, required)
			require.NoError(t, err)
			cfg.Signatures = signatures
		}
	}
}

// sendAs publishes a command with the signatures given.
func (s *stack) sendAs(c payment.Command, signatures ...string) {
	s.t.Helper()
	m := kafka.Message{Topic: s.topics.Commands, Key: []byte(c.IdempotencyKey.String()), Value: c.AppendJSON(nil)}
	for _, text := range signatures {
		m.Headers = append(m.Headers, kafka.Header{Key: signing.Header, Value: []byte(text)})
	}
	require.NoError(s.t, s.publish.Publish(s.ctx, m))
}

func sign(k signing.Key, c payment.Command) string {
	return k.Sign([]byte(c.IdempotencyKey.String()), c.AppendJSON(nil))
}

func by(caller string) func(*payment.Command) {
	return func(c *payment.Command) { c.Caller = caller }
}

// G12: what is not signed by its caller is a dead letter, with its bytes, and leaves
// nothing behind under the key it names: the caller's own command is charged.
func TestG12_ForgedSignatures(t *testing.T) {
	t.Parallel()
	shop, partner := signingKey(t, "shop-1", "shop"), signingKey(t, "partner-1", "partner")
	edge, guessed := signingKey(t, "edge-1", signing.Everyone), signingKey(t, "partner-1", "partner")
	s := start(t, signed(t, newKeyFile(t, shop, partner, edge), "partner"), patient)
	c := command(by("partner"))
	dearer := c
	dearer.Amount *= 100
	other := command(by("partner"))
	invalid := c
	invalid.Currency = "euro"
	forged := map[string]struct {
		c          payment.Command
		signatures []string
	}{
		"unsigned":                 {c, nil},
		"by another caller":        {c, []string{sign(shop, c)}},
		"by a guessed secret":      {c, []string{sign(guessed, c)}},
		"of another body":          {dearer, []string{sign(partner, c)}},
		"of another key":           {c, []string{sign(partner, other)}},
		"two, one of them right":   {c, []string{sign(partner, c), sign(partner, c)}},
		"rubbish":                  {c, []string{"\xff\x00"}},
		"unsigned and invalid":     {invalid, nil},
		"shop's, and wrong anyway": {command(), []string{sign(partner, c)}},
	}
	for _, f := range forged {
		s.sendAs(f.c, f.signatures...)
	}
	ours, theirs := command(), c
	s.sendAs(ours)
	s.sendAs(theirs, sign(partner, theirs))
	edges := command(by("partner"))
	s.sendAs(edges, sign(edge, edges))
	for _, good := range []payment.Command{ours, theirs, edges} {
		s.waitState(good, payment.Succeeded)
		s.once(good)
		require.Len(t, s.front.submits(good), 1)
	}
	s.watch.until(t, func() bool { return len(s.watch.topic(s.topics.DeadLetter)) == len(forged) }, "a dead letter for each forged command")
	for _, dead := range s.watch.topic(s.topics.DeadLetter) {
		require.Equal(t, string(payment.DeadBadSignature), header(dead, "dl_reason"))
	}
	require.Len(t, s.front.all("POST"), 3, "nothing forged reached the channel")
	for _, r := range s.replies(c.IdempotencyKey) {
		require.Equal(t, payment.ReplyOutcome, r.Kind, "a forger is told nothing, and its commands are no conflict")
	}
	require.Equal(t, theirs.Amount, s.charge(theirs).BookedAmount)
}

// A signature stays right when the record is published again, and when it comes back
// from the dead-letter topic with all the headers it has there.
func TestG12_SignatureSurvivesRepeats(t *testing.T) {
	t.Parallel()
	partner := signingKey(t, "partner-1", "partner")
	f := newKeyFile(t, signingKey(t, "other-1", "other")) // the key comes too late
	s := start(t, signed(t, f, "partner"))
	c := command(by("partner"))
	s.sendAs(c, sign(partner, c))
	dead := s.deadLetter(c.IdempotencyKey.String())
	f.write(partner)
	back := kafka.Message{Topic: header(dead, "dl_topic"), Key: dead.Key, Value: dead.Value}
	for _, h := range dead.Headers {
		back.Headers = append(back.Headers, kafka.Header{Key: h.Key, Value: h.Value})
	}
	require.NoError(t, s.publish.Publish(s.ctx, back, back))
	s.waitState(c, payment.Succeeded)
	s.once(c)
	s.watch.until(t, func() bool { return len(s.replies(c.IdempotencyKey)) == 2 }, "two answers")
}

// Keys change without a restart and without a gap: a new one counts as soon as it is
// in the file, and while the file cannot be read nobody is refused by the old one.
func TestG12_SigningKeysRotate(t *testing.T) {
	t.Parallel()
	first, second := signingKey(t, "partner-1", "partner"), signingKey(t, "partner-2", "partner")
	f := newKeyFile(t, first)
	s := start(t, signed(t, f, signing.Everyone))
	signedBy := func(k signing.Key) payment.Command {
		c := command(by("partner"))
		s.sendAs(c, sign(k, c))
		return c
	}
	s.waitState(signedBy(first), payment.Succeeded)
	f.write(first, second)
	s.waitState(signedBy(second), payment.Succeeded)
	s.waitState(signedBy(first), payment.Succeeded)

	require.NoError(t, os.WriteFile(f.path, []byte("half a li"), 0o600))
	third := signingKey(t, "partner-3", "partner")
	late := signedBy(third)
	require.Eventually(t, func() bool { return len(s.logs.with("bring callers and their keys up to date")) > 0 }, waitFor, tick)
	require.Zero(t, s.state(late))
	f.write(second, third)
	s.waitState(late, payment.Succeeded)
	require.Empty(t, s.watch.topic(s.topics.DeadLetter))
	taken := signedBy(first)
	s.deadLetter(taken.IdempotencyKey.String())
	require.Zero(t, s.state(taken))
}

// registered lets the consumers go by the table of callers.
func registered(set *settings) {
	set.consumer = func(s *stack, cfg *consumer.Config) {
		directory, err := callertable.NewDirectory(callertable.DirectoryConfig{Pool: s.pool})
		require.NoError(s.t, err)
		cfg.Registered = true
		cfg.Callers = callertable.NewRegister(directory, callertable.Rules{
			Carries: func(string, string) bool { return true }, Named: func(string) bool { return false },
		})
	}
}

// A caller that was added a moment ago is taken; while the database cannot say
// whether there is such a caller, its command waits (G12, P22).
func TestG12_CallersFromTheTable(t *testing.T) {
	t.Parallel()
	s := start(t, registered, proxied)
	s.consumers[0].owns()
	registry := callertable.NewRegistry(s.db, s.check)
	add := func(name, namespace string) {
		t.Helper()
		_, err := registry.Add(s.ctx, callertable.By{Actor: "test"}, name, "", callertable.Change{Namespace: &namespace})
		require.NoError(t, err)
	}
	add("shop", "family")
	first := command()
	s.send(first)
	s.waitState(first, payment.Succeeded)
	s.proxy.down()
	add("kiosk", "family")
	late := command(by("kiosk"))
	foreign := command(by("stranger"))
	s.send(late, foreign)
	require.Eventually(t, func() bool { return len(s.logs.with("bring callers and their keys up to date")) > 0 }, waitFor, tick)
	s.proxy.up()
	s.waitState(late, payment.Succeeded)
	require.Equal(t, string(payment.DeadForeignCaller), header(s.deadLetter(foreign.IdempotencyKey.String()), "dl_reason"))
	require.Len(t, s.watch.topic(s.topics.DeadLetter), 1)

	// Callers of one namespace stand in each other's way, and hear no more of it than the id.
	again := command(by("kiosk"), orderOf(first), issued(-time.Hour))
	s.send(again)
	r := s.waitReply(again.IdempotencyKey, payment.ReplyRejected)
	require.Equal(t, payment.CodeObligationAlreadyPaid, r.Code)
	require.Equal(t, first.Identity().PaymentID(), *r.BlockedBy)
	require.Nil(t, r.Outcome)
	require.NotContains(t, r.Detail, first.IdempotencyKey.String())
}

// P18, G12: two callers with one key, each with topics of its own: nothing about the
// one is in a topic that the other reads.
func TestP18_TopicsOfTheirOwn(t *testing.T) {
	t.Parallel()
	s := start(t, patient, func(set *settings) { set.ownTopics = map[string]string{"partner": "partner", "kiosk": "kiosk"} })
	ours := command()
	byCaller := map[string]payment.Command{"shop": ours}
	for _, name := range []string{"partner", "kiosk"} {
		c := ours
		c.Caller = name
		byCaller[name] = c
	}
	all := slices.Collect(maps.Values(byCaller))
	s.send(slices.Concat(all, all)...)
	for name, c := range byCaller {
		ending := "." + name
		if name == "shop" {
			ending = ""
		}
		replies, events := s.topics.Replies+ending, s.topics.Events+ending
		s.watch.until(t, func() bool { return len(s.watch.topic(replies)) == 2 && len(s.watch.topic(events)) == 1 }, "the messages of %s", name)
		for _, r := range slices.Concat(s.watch.topic(replies), s.watch.topic(events)) {
			require.Equal(t, name, callerOf(t, r))
		}
		require.Equal(t, payment.Succeeded, s.state(c))
	}
}

func callerOf(t *testing.T, r *kgo.Record) string {
	t.Helper()
	var said struct {
		Caller string `json:"caller"`
	}
	require.NoError(t, json.Unmarshal(r.Value, &said))
	return said.Caller
}

package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/payment"
	"github.com/settleonce/settleonce/producer"
	"github.com/settleonce/settleonce/producer/edge"
)

func commandOf(caller string, key uuid.UUID) payment.Command {
	return payment.Command{Caller: caller, Operation: payment.OperationCharge, IdempotencyKey: key}
}

// A payment gets its outcome, and every repeat the same one, marked as replayed;
// another content under its key is a conflict and changes nothing.
func TestEdgeFirstOutcome(t *testing.T) {
	t.Parallel()
	d := shared(t).openDoor()
	key, body := uuid.New(), order(with("metadata", map[string]string{"cart": "c-55"}))

	first := d.post(tokenShop, key, body)
	require.Equal(t, http.StatusOK, first.status, first.body)
	require.Equal(t, "succeeded", first.payment.State)
	require.Equal(t, "/v1/payments/"+key.String(), first.header.Get("Location"))
	require.Equal(t, "wait=120", first.header.Get("Preference-Applied"))
	require.Empty(t, first.header.Get("Idempotent-Replayed"))
	require.NotEmpty(t, first.payment.ProviderReference)

	for _, spelled := range []string{key.String(), `"` + strings.ToUpper(key.String()) + `"`} {
		again := d.must(http.MethodPost, "/v1/payments", tokenShop, body, "Idempotency-Key", spelled, "Content-Type", "application/json; charset=utf-8")
		require.Equal(t, http.StatusOK, again.status, again.body)
		require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
		require.JSONEq(t, first.body, again.body)
	}
	other := strings.Replace(body, "1999", "2999", 1)
	clash := d.post(tokenShop, key, other)
	require.Equal(t, http.StatusConflict, clash.status, clash.body)
	require.Equal(t, edge.CodeIdempotencyClash, clash.problem.Code)

	got := d.get(tokenShop, key)
	require.JSONEq(t, first.body, got.body)
	d.s.once(commandOf("shop", key))
	require.Equal(t, 1, d.s.providerKeys(orderIn(t, body)))
	d.toldAll(key)
}

// toldAll looks at the history of the payment above. The edge answers from what it
// knows: the repeats may be consumed later.
func (d *door) toldAll(key uuid.UUID) {
	d.s.t.Helper()
	type told struct{ Kind, Code string }
	var history struct {
		History    []struct{ State string }
		Deliveries []told
	}
	d.s.eventually("three more deliveries", func() bool {
		a, err := d.ask(http.MethodGet, "/v1/payments/"+key.String()+"/history", tokenShop, "")
		history.History, history.Deliveries = nil, nil
		return err == nil && json.Unmarshal([]byte(a.body), &history) == nil && len(history.Deliveries) == 3
	})
	require.Equal(d.s.t, "succeeded", history.History[len(history.History)-1].State)
	require.Equal(d.s.t, []told{
		{"replayed", ""}, {"replayed", ""}, {"conflict", string(payment.CodeIdempotencyConflict)},
	}, history.Deliveries)
}

func TestEdgeDeclineIsAnOutcome(t *testing.T) {
	t.Parallel()
	d := shared(t).openDoor()
	key := uuid.New()
	a := d.post(tokenShop, key, order(with("metadata", map[string]string{"sim": "declined"})))
	require.Equal(t, http.StatusOK, a.status, a.body)
	require.Equal(t, "declined", a.payment.State)
	require.NotEmpty(t, a.payment.Cause)
	d.s.once(commandOf("shop", key))
}

// P17 at the edge: fifty posts of one key at once, half with another amount, over
// two edges. One charge; the ones like the winner get its outcome, one of them as
// the first; the others are in conflict (G1, G2, G8).
func TestP17_EdgeFiftyPosts(t *testing.T) {
	t.Parallel()
	s := shared(t)
	doors := []*door{s.openDoor(), s.openDoor()}
	key := uuid.New()
	bodies := []string{order()}
	bodies = append(bodies, strings.Replace(bodies[0], "1999", "2999", 1))
	answers := make([]answer, 50)
	errs := make([]error, len(answers))
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() {
			<-start
			answers[i], errs[i] = doors[i/2%2].ask(http.MethodPost, "/v1/payments", tokenShop, bodies[i%2], postHeaders(key)...)
		})
	}
	close(start)
	all.Wait()
	require.NoError(t, errors.Join(errs...))

	won := s.status(commandOf("shop", key)).Payment.Amount
	firsts := 0
	for i, a := range answers {
		if mine := int64(1999 + i%2*1000); mine != won {
			require.Equal(t, http.StatusConflict, a.status, a.body)
			require.Equal(t, edge.CodeIdempotencyClash, a.problem.Code)
			continue
		}
		require.Equal(t, http.StatusOK, a.status, a.body)
		require.Equal(t, won, a.payment.Amount)
		if a.header.Get("Idempotent-Replayed") == "" {
			firsts++
		}
	}
	require.Equal(t, 1, firsts, "who was the first")
	require.Equal(t, 1, s.settled(commandOf("shop", key)))
	require.Equal(t, 1, s.providerKeys(orderIn(t, bodies[0])))
}

// P18 at the edge: two callers with the same key have two payments, and neither
// sees anything of the other's: not by key, order, history, conflict or time.
func TestP18_EdgeLeaksNothing(t *testing.T) {
	t.Parallel()
	s := shared(t)
	d := s.openDoor()
	key, body := uuid.New(), order()
	orderID := orderIn(t, body)

	ours := d.post(tokenShop, key, body)
	require.Equal(t, http.StatusOK, ours.status, ours.body)
	before, never := d.get(tokenPartner, key), d.get(tokenPartner, uuid.New())
	require.Equal(t, http.StatusNotFound, before.status)
	require.Equal(t, without(t, never.body, "requestId"), without(t, before.body, "requestId"))
	for _, path := range []string{"/v1/payments/" + key.String() + "/history", "/v1/payments?order=" + orderID} {
		require.NotContains(t, d.must(http.MethodGet, path, tokenPartner, "").body, ours.payment.PaymentID.String())
	}

	theirs := d.post(tokenPartner, key, strings.Replace(body, "1999", "2999", 1))
	require.Equal(t, http.StatusOK, theirs.status, theirs.body)
	require.Empty(t, theirs.header.Get("Idempotent-Replayed"))
	require.NotEqual(t, ours.payment.PaymentID, theirs.payment.PaymentID)
	require.EqualValues(t, 2999, d.get(tokenPartner, key).payment.Amount)
	require.EqualValues(t, 1999, d.get(tokenShop, key).payment.Amount)
	require.Len(t, d.listed(tokenShop, orderID), 1)
	require.Equal(t, 1, s.settled(commandOf("shop", key)))
	require.Equal(t, 1, s.settled(commandOf("partner", key)))

	// Nobody speaks in another's name.
	forged := d.post(tokenPartner, uuid.New(), order(with("caller", "shop")))
	require.Equal(t, http.StatusForbidden, forged.status)
	require.Equal(t, edge.CodeCallerMismatch, forged.problem.Code)
	require.Equal(t, http.StatusUnauthorized, d.get("token-of-nobody", key).status)
	require.Equal(t, http.StatusUnauthorized, d.get("", key).status)
}

func without(t *testing.T, body, name string) map[string]any {
	t.Helper()
	var fields map[string]any
	require.NoError(t, json.Unmarshal([]byte(body), &fields))
	delete(fields, name)
	return fields
}

// listed are the keys of an order's payments, over pages of one.
func (d *door) listed(token, orderID string) []uuid.UUID {
	d.s.t.Helper()
	var keys []uuid.UUID
	for cursor := ""; ; {
		path := "/v1/payments?limit=1&order=" + orderID
		if cursor != "" {
			path += "&cursor=" + cursor
		}
		a := d.must(http.MethodGet, path, token, "")
		require.Equal(d.s.t, http.StatusOK, a.status, a.body)
		var page struct {
			Payments []edge.Payment
			Next     string
		}
		require.NoError(d.s.t, json.Unmarshal([]byte(a.body), &page))
		for _, p := range page.Payments {
			keys = append(keys, p.IdempotencyKey)
		}
		if cursor = page.Next; cursor == "" {
			return keys
		}
	}
}

// A second key for an obligation is refused while the first is open and after its
// success, with what blocks it; the refusal is remembered. One that names what it
// follows goes through.
func TestEdgeObligations(t *testing.T) {
	t.Parallel()
	d := shared(t).openDoor()
	slow, second, third, fourth := uuid.New(), uuid.New(), uuid.New(), uuid.New()
	body := order(with("metadata", map[string]string{"sim": "slow:5s"}), with("issuedAt", time.Now().UTC().Format(time.RFC3339Nano)))
	pending := d.must(http.MethodPost, "/v1/payments", tokenShop, body,
		"Idempotency-Key", slow.String(), "Content-Type", "application/json", "Prefer", "wait=0")
	require.Equal(t, http.StatusAccepted, pending.status, pending.body)
	require.Contains(t, []string{"accepted", "pending"}, pending.payment.State)
	// Keys are consumed in any order: the first must be claimed to be in the way.
	d.s.eventually("it is claimed", func() bool { return d.s.state(commandOf("shop", slow)) != 0 })

	blocked := d.post(tokenShop, second, body)
	require.Equal(t, http.StatusConflict, blocked.status, blocked.body)
	require.Contains(t, []edge.Code{edge.CodePriorUnresolved, edge.CodeAlreadyPaid}, blocked.problem.Code)
	require.Equal(t, pending.payment.PaymentID, *blocked.problem.BlockedBy)
	require.Empty(t, blocked.header.Get("Idempotent-Replayed"))

	paid := d.get(tokenShop, slow, "Prefer", "wait=120")
	require.Equal(t, "succeeded", paid.payment.State, paid.body)
	again := d.post(tokenShop, second, body)
	require.Equal(t, blocked.problem.Code, again.problem.Code)
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))

	late := d.post(tokenShop, third, body)
	require.Equal(t, http.StatusConflict, late.status, late.body)
	require.Equal(t, edge.CodeAlreadyPaid, late.problem.Code)
	require.Equal(t, paid.payment.PaymentID, *late.problem.BlockedBy)

	var fields map[string]any
	require.NoError(t, json.Unmarshal([]byte(body), &fields))
	fields["follows"] = paid.payment.PaymentID
	next := d.post(tokenShop, fourth, order(func(f map[string]any) { maps.Copy(f, fields) }))
	require.Equal(t, http.StatusOK, next.status, next.body)
	require.Equal(t, []uuid.UUID{fourth, third, second, slow}, d.listed(tokenShop, orderIn(t, body)))
}

func TestEdgeRejections(t *testing.T) {
	t.Parallel()
	d := shared(t).openDoor()
	for name, test := range map[string]struct {
		change func(map[string]any)
		code   edge.Code
	}{
		"unknown channel": {with("channel", "nowhere"), edge.CodeUnknownChannel},
		"stale":           {with("issuedAt", "2020-01-01T00:00:00Z"), edge.CodeStaleCommand},
		"future":          {with("issuedAt", time.Now().Add(time.Hour).UTC().Format(time.RFC3339)), edge.CodeInvalidCommand},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key, body := uuid.New(), order(test.change)
			for _, replayed := range []string{"", "true"} {
				a := d.post(tokenShop, key, body)
				require.Equal(t, http.StatusUnprocessableEntity, a.status, a.body)
				require.Equal(t, test.code, a.problem.Code)
				require.Equal(t, replayed, a.header.Get("Idempotent-Replayed"))
				require.Equal(t, "rejected", a.problem.Payment.State)
			}
			require.Equal(t, "rejected", d.get(tokenShop, key).payment.State)
		})
	}
}

// Clients that know no keys get one for some time, and are told so.
func TestEdgeGrace(t *testing.T) {
	t.Parallel()
	d := shared(t).openDoor()
	d.client.Transport = http.DefaultTransport // the document wants a key
	a := d.must(http.MethodPost, "/v1/payments", tokenLegacy, order(), "Content-Type", "application/json", "Prefer", "wait=120")
	require.Equal(t, http.StatusOK, a.status, a.body)
	require.Equal(t, `"`+a.payment.IdempotencyKey.String()+`"`, a.header.Get("Idempotency-Key"))
	require.Equal(t, "@1796083200", a.header.Get("Deprecation"))
	require.Equal(t, graceEnds.Format(http.TimeFormat), a.header.Get("Sunset"))
	require.Equal(t, "succeeded", d.get(tokenLegacy, a.payment.IdempotencyKey).payment.State)

	wrong := d.must(http.MethodPost, "/v1/payments", tokenLegacy, order(), "Content-Type", "application/json", "Idempotency-Key", "1")
	require.Equal(t, edge.CodeInvalidKey, wrong.problem.Code)
	refused := d.must(http.MethodPost, "/v1/payments", tokenShop, order(), "Content-Type", "application/json")
	require.Equal(t, http.StatusBadRequest, refused.status)
	require.Equal(t, edge.CodeMissingKey, refused.problem.Code)
	http.DefaultTransport.(*http.Transport).CloseIdleConnections() //nolint:forcetypeassert,errcheck // it is one
}

// lossy loses the answer of its first send, after or before the command is there.
type lossy struct {
	edge.Sender

	before bool
	lost   atomic.Bool
}

// Send sends, but the first time the sender hears nothing of it.
func (l *lossy) Send(ctx context.Context, cmd payment.Command, opts producer.Options) (producer.Place, error) {
	if l.lost.Swap(true) {
		return l.Sender.Send(ctx, cmd, opts)
	}
	if !l.before {
		if _, err := l.Sender.Send(ctx, cmd, opts); err != nil {
			return producer.Place{}, err
		}
	}
	return producer.Place{}, &producer.UnknownError{}
}

// What Kafka did not acknowledge is answered 503, whether it is there or not; the
// same request, sent again, is charged once.
func TestEdgeNotAcknowledged(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]bool{"lost": true, "there all the same": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := shared(t)
			d := s.openDoor(func(c *edge.Config) { c.Sender = &lossy{Sender: c.Sender, before: before} })
			key, body := uuid.New(), order()
			a := d.post(tokenShop, key, body)
			require.Equal(t, http.StatusServiceUnavailable, a.status, a.body)
			require.Equal(t, edge.CodeNotDurable, a.problem.Code)
			require.Equal(t, "1", a.header.Get("Retry-After"))
			a = d.post(tokenShop, key, body)
			require.Equal(t, http.StatusOK, a.status, a.body)
			require.Equal(t, before, a.header.Get("Idempotent-Replayed") == "")
			require.Equal(t, 1, s.settled(commandOf("shop", key)))
		})
	}
}

// Without any Kafka nothing is taken, and nothing is lost: the client has the key.
func TestEdgeKafkaDown(t *testing.T) {
	t.Parallel()
	s := shared(t)
	nobody := s.toNobody()
	down := s.openDoor(func(c *edge.Config) { c.Sender = nobody })
	key, body := uuid.New(), order()
	a := down.post(tokenShop, key, body)
	require.Equal(t, http.StatusServiceUnavailable, a.status, a.body)
	require.Equal(t, edge.CodeNotDurable, a.problem.Code)
	require.Equal(t, http.StatusNotFound, down.get(tokenShop, key).status)
	up := s.openDoor()
	require.Equal(t, http.StatusOK, up.post(tokenShop, key, body).status)
	require.Equal(t, 1, s.settled(commandOf("shop", key)))
}

// An edge that ends answers who waits with what is known, and takes nothing more.
func TestEdgeDrains(t *testing.T) {
	t.Parallel()
	s := shared(t)
	d := s.openDoor()
	key := uuid.New()
	body := order(with("metadata", map[string]string{"sim": "slow:5s"}))
	accepted := d.must(http.MethodPost, "/v1/payments", tokenShop, body,
		"Idempotency-Key", key.String(), "Content-Type", "application/json", "Prefer", "wait=0")
	require.Equal(t, http.StatusAccepted, accepted.status, accepted.body)
	s.eventually("it is claimed", func() bool { return s.state(commandOf("shop", key)) != 0 })
	waiting := make(chan answer, 1)
	go func() {
		a, err := d.ask(http.MethodGet, "/v1/payments/"+key.String(), tokenShop, "", "Prefer", "wait=120")
		if err != nil {
			a.body = err.Error()
		}
		waiting <- a
	}()
	d.role.stop()
	a := <-waiting
	if a.status != 0 { // else it came too late to be taken
		require.Equal(t, http.StatusOK, a.status, a.body)
	}
	_, err := d.ask(http.MethodGet, "/v1/payments/"+key.String(), tokenShop, "")
	require.Error(t, err)
	s.waitState(commandOf("shop", key), payment.Succeeded)
}

// The trace of the client goes on with the command.
func TestEdgeTraceContext(t *testing.T) {
	t.Parallel()
	s := shared(t)
	d := s.openDoor()
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	key := uuid.New()
	a := d.post(tokenShop, key, order(), "traceparent", parent, "X-Request-Id", "checkout-17")
	require.Equal(t, http.StatusOK, a.status, a.body)
	require.Equal(t, "checkout-17", a.header.Get("X-Request-ID"))
	require.Equal(t, parent, s.commandHeader(key, "traceparent"))
}

// commandHeader reads a header of the command from the topic.
func (s *stack) commandHeader(key uuid.UUID, name string) string {
	s.t.Helper()
	p := s.status(commandOf("shop", key)).Payment.Origin
	for _, h := range s.recordAt(p.Topic, p.Partition, p.Offset).Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// What is wrong with a request is found before anything is stored.
func TestEdgeRefusals(t *testing.T) {
	t.Parallel()
	d := shared(t).openDoor()
	key := uuid.NewString()
	fine := []string{"Idempotency-Key", key, "Content-Type", "application/json"}
	for name, test := range map[string]struct {
		method, path, token, body string
		headers                   []string
		status                    int
		code                      edge.Code
	}{
		"no body":           {"POST", "/v1/payments", tokenShop, "", fine, 400, edge.CodeUnreadableBody},
		"not JSON":          {"POST", "/v1/payments", tokenShop, "{", fine, 400, edge.CodeUnreadableBody},
		"null":              {"POST", "/v1/payments", tokenShop, "null", fine, 400, edge.CodeUnreadableBody},
		"array":             {"POST", "/v1/payments", tokenShop, "[]", fine, 400, edge.CodeUnreadableBody},
		"two values":        {"POST", "/v1/payments", tokenShop, order() + "{}", fine, 400, edge.CodeUnreadableBody},
		"not UTF-8":         {"POST", "/v1/payments", tokenShop, order()[:1] + "\"\xff\":1," + order()[1:], fine, 400, edge.CodeUnreadableBody},
		"empty object":      {"POST", "/v1/payments", tokenShop, "{}", fine, 422, edge.CodeInvalidRequest},
		"misspelled":        {"POST", "/v1/payments", tokenShop, order(with("orderID", 1)), fine, 422, edge.CodeInvalidRequest},
		"no amount":         {"POST", "/v1/payments", tokenShop, order(with("amount", 0)), fine, 422, edge.CodeInvalidRequest},
		"card":              {"POST", "/v1/payments", tokenShop, order(with("paymentMethod", "4242424242424242")), fine, 422, edge.CodeInvalidRequest},
		"NUL":               {"POST", "/v1/payments", tokenShop, order(with("orderId", "a\x00b")), fine, 422, edge.CodeInvalidRequest},
		"twice":             {"POST", "/v1/payments", tokenShop, `{"amount":1,` + order()[1:], fine, 422, edge.CodeInvalidRequest},
		"other key":         {"POST", "/v1/payments", tokenShop, order(with("idempotencyKey", uuid.NewString())), fine, 422, edge.CodeInvalidRequest},
		"other operation":   {"POST", "/v1/payments", tokenShop, order(with("operation", "refund")), fine, 422, edge.CodeInvalidRequest},
		"null caller":       {"POST", "/v1/payments", tokenShop, order(with("caller", nil)), fine, 422, edge.CodeInvalidRequest},
		"no time of intent": {"POST", "/v1/payments", tokenStrict, order(), fine, 422, edge.CodeInvalidRequest},
		"too large":         {"POST", "/v1/payments", tokenShop, order() + strings.Repeat(" ", 64<<10), fine, 413, edge.CodeBodyTooLarge},
		"no content type":   {"POST", "/v1/payments", tokenShop, order(), fine[:2], 415, edge.CodeUnsupportedMedia},
		"form":              {"POST", "/v1/payments", tokenShop, "a=b", []string{"Idempotency-Key", key, "Content-Type", "application/x-www-form-urlencoded"}, 415, edge.CodeUnsupportedMedia},
		"encoded":           {"POST", "/v1/payments", tokenShop, order(), append([]string{"Content-Encoding", "gzip"}, fine...), 415, edge.CodeUnsupportedMedia},
		"version 1":         {"POST", "/v1/payments", tokenShop, order(), []string{"Idempotency-Key", "c232ab00-9414-11ec-b3c8-9f6bdeced846", "Content-Type", "application/json"}, 400, edge.CodeInvalidKey},
		"two keys":          {"POST", "/v1/payments", tokenShop, order(), append([]string{"Idempotency-Key", uuid.NewString()}, fine...), 400, edge.CodeInvalidKey},
		"half a quote":      {"POST", "/v1/payments", tokenShop, order(), []string{"Idempotency-Key", `"` + key, "Content-Type", "application/json"}, 400, edge.CodeInvalidKey},
		"method":            {"DELETE", "/v1/payments/" + key, tokenShop, "", nil, 405, edge.CodeMethodNotAllowed},
		"path":              {"GET", "/v1/payments//" + key, tokenShop, "", nil, 404, edge.CodeNotFound},
		"key in path":       {"GET", "/v1/payments/1", tokenShop, "", nil, 400, edge.CodeInvalidKey},
		"no order":          {"GET", "/v1/payments", tokenShop, "", nil, 400, edge.CodeInvalidQuery},
		"NUL in order":      {"GET", "/v1/payments?order=%00", tokenShop, "", nil, 400, edge.CodeInvalidQuery},
		"bad UTF-8 order":   {"GET", "/v1/payments?order=%ff", tokenShop, "", nil, 400, edge.CodeInvalidQuery},
		"bad escape":        {"GET", "/v1/payments?order=%zz", tokenShop, "", nil, 400, edge.CodeInvalidQuery},
		"bad cursor":        {"GET", "/v1/payments?order=a&cursor=" + strings.Repeat("_", 32), tokenShop, "", nil, 400, edge.CodeInvalidQuery},
		"misspelled query":  {"GET", "/v1/payments?order=a&curser=b", tokenShop, "", nil, 400, edge.CodeInvalidQuery},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := d.must(test.method, test.path, test.token, test.body, test.headers...)
			require.Equal(t, test.status, a.status, a.body)
			require.Equal(t, test.code, a.problem.Code)
			require.Equal(t, strconv.Itoa(test.status), strconv.Itoa(a.problem.Status))
			require.NotContains(t, a.body, "4242")
		})
	}
}

// limited allows nothing.
type limited struct{ edge.Callers }

// Allow refuses.
func (limited) Allow(edge.Caller) (bool, time.Duration) { return false, 1500 * time.Millisecond }

// unreachable knows nothing.
type unreachable struct{ edge.Callers }

// Authenticate fails.
func (unreachable) Authenticate(context.Context, string) (edge.Caller, error) {
	return edge.Caller{}, errors.New("no table")
}

func TestEdgeShedsLoad(t *testing.T) {
	t.Parallel()
	s := shared(t)
	d := s.openDoor(func(c *edge.Config) { c.Callers = limited{c.Callers} })
	a := d.get(tokenShop, uuid.New())
	require.Equal(t, http.StatusTooManyRequests, a.status)
	require.Equal(t, edge.CodeRateLimited, a.problem.Code)
	require.Equal(t, "2", a.header.Get("Retry-After"))

	d = s.openDoor(func(c *edge.Config) { c.Callers = unreachable{} })
	require.Equal(t, edge.CodeUnavailable, d.get(tokenShop, uuid.New()).problem.Code)

	d = s.openDoor(func(c *edge.Config) { c.Topic = func(string) (string, bool) { return "", false } })
	require.Equal(t, edge.CodeCallerNotAllowed, d.post(tokenShop, uuid.New(), order()).problem.Code)
}

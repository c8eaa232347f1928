package e2e_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/producer"
	"github.com/settleonce/settleonce/producer/edge"
	"github.com/settleonce/settleonce/schemas"
	"github.com/settleonce/settleonce/schemas/openapitest"
)

// The credentials of the edges of these tests, by caller.
const (
	tokenShop    = "token-of-shop"
	tokenPartner = "token-of-partner"
	tokenLegacy  = "token-of-legacy"
	tokenStrict  = "token-of-strict"
)

var graceEnds = time.Now().Add(48 * time.Hour).UTC().Truncate(time.Second)

func tokens() map[string]edge.Caller {
	return map[string]edge.Caller{
		tokenShop: {Name: "shop"}, tokenPartner: {Name: "partner"}, tokenLegacy: {Name: "legacy", GraceUntil: graceEnds},
		tokenStrict: {Name: "strict", RequireIssuedAt: true},
	}
}

// door is an edge of the stack and a client whose exchanges are held against the
// OpenAPI document.
type door struct {
	s       *stack
	url     string
	role    *role
	client  *http.Client
	checked *openapitest.Transport
}

// openDoor starts an edge.
func (s *stack) openDoor(change ...func(*edge.Config)) *door {
	s.t.Helper()
	sender := s.newSender(s.brokers)
	cfg := s.edgeConfig(sender)
	for _, f := range change {
		f(&cfg)
	}
	server, err := edge.New(cfg)
	require.NoError(s.t, err)
	require.NoError(s.t, server.Listen(s.ctx))
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	s.t.Cleanup(transport.CloseIdleConnections)
	d := &door{s: s, url: server.URL(), role: s.launch(server.Run), checked: openapitest.New(s.t, transport)}
	d.client = &http.Client{Transport: d.checked}
	return d
}

func (s *stack) newSender(brokers []string) *producer.Producer {
	s.t.Helper()
	return s.senderOf(producer.Config{Brokers: brokers, Timeout: publishWithin})
}

// toNobody sends to where no Kafka is.
func (s *stack) toNobody() *producer.Producer {
	s.t.Helper()
	return s.senderOf(producer.Config{Brokers: []string{"127.0.0.1:1"}, Attempts: 1, Timeout: 300 * time.Millisecond})
}

func (s *stack) senderOf(cfg producer.Config) *producer.Producer {
	s.t.Helper()
	sender, err := producer.New(cfg)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { require.NoError(s.t, sender.Close(context.Background())) })
	return sender
}

func (s *stack) edgeConfig(sender edge.Sender) edge.Config {
	document, err := schemas.OpenAPI()
	require.NoError(s.t, err)
	return edge.Config{
		Address: "127.0.0.1:0", Callers: edge.NewStaticCallers(tokens()), Sender: sender, Reader: s.store, OpenAPI: document,
		Wait: 2 * time.Minute, MaxWait: 2 * time.Minute, PublishTimeout: publishWithin, Logger: s.logs.logger(),
	}
}

// answer is what came back.
type answer struct {
	status  int
	header  http.Header
	body    string
	payment edge.Payment
	problem edge.Problem
}

// ask makes one request. Headers are name, value, name, value.
func (d *door) ask(method, path, token, body string, headers ...string) (answer, error) {
	request, err := http.NewRequestWithContext(d.s.ctx, method, d.url+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	request.GetBody = nil // no repetition by the transport
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	response, err := d.client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{status: response.StatusCode, header: response.Header, body: string(content)}
	if a.status < http.StatusBadRequest {
		return a, json.Unmarshal(content, &a.payment)
	}
	return a, json.Unmarshal(content, &a.problem)
}

func (d *door) must(method, path, token, body string, headers ...string) answer {
	d.s.t.Helper()
	a, err := d.ask(method, path, token, body, headers...)
	require.NoError(d.s.t, err)
	return a
}

// post submits a payment and waits long for its outcome.
func (d *door) post(token string, key uuid.UUID, body string, headers ...string) answer {
	d.s.t.Helper()
	return d.must(http.MethodPost, "/v1/payments", token, body, postHeaders(key, headers...)...)
}

func postHeaders(key uuid.UUID, headers ...string) []string {
	return append([]string{
		"Idempotency-Key", `"` + key.String() + `"`, "Content-Type", "application/json", "Prefer", "wait=120",
	}, headers...)
}

func (d *door) get(token string, key uuid.UUID, headers ...string) answer {
	d.s.t.Helper()
	return d.must(http.MethodGet, "/v1/payments/"+key.String(), token, "", headers...)
}

// order is a payment request for an order of its own.
func order(change ...func(map[string]any)) string {
	fields := map[string]any{
		"orderId": "order-" + uuid.NewString(), "amount": 1999, "currency": "EUR", "customerId": "cust-7",
		"paymentMethod": "tok_visa", "channel": "sim",
	}
	for _, f := range change {
		f(fields)
	}
	text, _ := json.Marshal(fields)
	return string(text)
}

// with sets a field of an order.
func with(name string, value any) func(map[string]any) {
	return func(fields map[string]any) { fields[name] = value }
}

func orderIn(t testing.TB, body string) string {
	t.Helper()
	var fields map[string]any
	require.NoError(t, json.Unmarshal([]byte(body), &fields))
	text, _ := fields["orderId"].(string)
	return text
}

// recordAt reads one record.
func (s *stack) recordAt(topic string, partition int, offset int64) kafka.Record {
	s.t.Helper()
	var found kafka.Record
	_, err := s.kafka.ReadFrom(s.ctx, topic, map[int]int64{partition: offset}, func(r kafka.Record) error {
		if r.Partition == partition && r.Offset == offset {
			found = r
		}
		return nil
	})
	require.NoError(s.t, err)
	return found
}

package edge

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/internal/tracing"
	"github.com/settleonce/settleonce/payment"
	"github.com/settleonce/settleonce/producer"
)

func TestPreferredWait(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]time.Duration{
		"wait=5": 5 * time.Second, "respond-async, WAIT=10": 10 * time.Second, `wait="7"`: 7 * time.Second, "wait = 3": 3 * time.Second,
		"wait=4;x=y": 4 * time.Second, "wait=0": 0, "foo; wait=9": -1, "wait": -1, "wait=-1": -1, "wait=1.5": -1, "": -1,
		"wait=99999999999999999999": -1, "wait=1, wait=2": time.Second,
	} {
		got, ok := preferredWait([]string{header})
		if !ok {
			got = -1
		}
		require.Equal(t, want, got, header)
	}
}

func TestTraceHeaders(t *testing.T) {
	t.Parallel()
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for given, taken := range map[string]bool{
		parent: true, "": false, parent + "-x": false, strings.ToUpper(parent): false, "ff" + parent[2:]: false,
		"00-" + strings.Repeat("0", 32) + parent[35:]: false, strings.Replace(parent, "b7ad6b7169203331", strings.Repeat("0", 16), 1): false,
	} {
		r := httptest.NewRequest(http.MethodPost, "/", http.NoBody)
		r.Header.Set("Traceparent", given)
		r.Header.Set("Tracestate", "a=b")
		got := traceHeaders(r, tracing.Valid(given))
		if !taken {
			require.Nil(t, got, given)
			continue
		}
		require.Equal(t, map[string]string{"traceparent": given, "tracestate": "a=b"}, got)
	}
}

func TestRequestIDsAreHarmless(t *testing.T) {
	t.Parallel()
	for given, kept := range map[string]bool{
		"checkout-17": true, "A.b_9": true, "": false, "a b": false, "a\x1bb": false, "ä": false, strings.Repeat("x", 65): false,
	} {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.Header[http.CanonicalHeaderKey(requestIDHeader)] = []string{given}
		require.Equal(t, kept, requestIDOf(r) == given, given)
		require.NotEmpty(t, requestIDOf(r))
	}
}

func TestCursorsComeBack(t *testing.T) {
	t.Parallel()
	mark := store.Mark{At: time.Date(2026, 11, 30, 10, 0, 0, 123456000, time.UTC), ID: uuid.New()}
	back, ok := parseCursor(cursorOf(mark))
	require.True(t, ok)
	require.Equal(t, mark, back)
}

// FuzzCommand: whatever a body holds, it becomes a valid command of the caller and
// the key, or a problem with a documented status; never anything else (G12).
func FuzzCommand(f *testing.F) {
	const order = `"orderId":"o","amount":1,"currency":"EUR","customerId":"c","paymentMethod":"tok","channel":"sim"`
	key := uuid.MustParse("8e03978e-40d5-43e8-bc93-6894a57f9324")
	for _, body := range []string{
		`{` + order + `}`, ` {` + order + `} `, `{}`, `{"caller":"partner",` + order + `}`, `{"caller":"shop","caller":"partner",` + order + `}`,
		`{"Caller":"partner",` + order + `}`, `{"call\u0065r":"partner",` + order + `}`, `null`, `[]`, `{"issuedAt":"2026-01-01T00:00:00Z",` + order + `}`,
		`{"idempotencyKey":"8E03978E-40D5-43E8-BC93-6894A57F9324",` + order + `}`, "\ufeff{" + order + "}", `{"operation":null,` + order + `}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		cmd, problem := command(body, key, &Caller{Name: "shop"}, time.Now())
		if problem != nil {
			require.Contains(t, []int{400, 403, 422}, problem.Status)
			return
		}
		require.Equal(t, payment.Identity{Caller: "shop", Operation: payment.OperationCharge, Key: key}, cmd.Identity())
		require.NoError(t, cmd.Validate())
		back, err := payment.DecodeStrict(cmd.AppendJSON(nil))
		require.NoError(t, err)
		require.Equal(t, cmd.Identity(), back.Identity())
	})
}

// Everybody who waits is served by one look-up at a time; who waits for the same
// payment does not ask twice, and the pauses grow.
func TestWatcherSharesLooks(t *testing.T) {
	t.Parallel()
	const waiting = 200
	var looks, asked, open atomic.Int64
	ready := make(chan struct{})
	ids := []uuid.UUID{uuid.New(), uuid.New()}
	w := newWatcher(func(_ context.Context, wanted []uuid.UUID) ([]store.Payment, error) {
		require.EqualValues(t, 1, open.Add(1), "two at once")
		defer open.Add(-1)
		looks.Add(1)
		asked.Add(int64(len(wanted)))
		select {
		case <-ready:
			out := make([]store.Payment, len(wanted))
			for i, id := range wanted {
				out[i] = store.Payment{ID: id, State: payment.Succeeded}
			}
			return out, nil
		default:
			return nil, errors.New("not yet")
		}
	}, zerolog.Nop())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.run(ctx)
	}()
	var all sync.WaitGroup
	for i := range waiting {
		all.Go(func() {
			p := w.wait(t.Context(), nil, ids[i%2], func(p *store.Payment) bool { return p.State.Terminal() })
			if p == nil || p.ID != ids[i%2] {
				t.Error("another payment, or none")
			}
		})
	}
	require.Eventually(t, func() bool { return looks.Load() >= 2 }, 90*time.Second, time.Millisecond)
	close(ready)
	all.Wait()
	require.LessOrEqual(t, asked.Load(), 2*looks.Load())
	w.mu.Lock()
	require.Empty(t, w.waits)
	w.mu.Unlock()

	cancel()
	<-ended
}

// nobody sends and reads nothing.
type nobody struct{}

// Send is over.
func (nobody) Send(context.Context, payment.Command, producer.Options) (producer.Place, error) {
	return producer.Place{}, producer.ErrClosed
}

// Look breaks its caller.
func (nobody) Look(context.Context, []uuid.UUID) ([]store.Payment, error) {
	var none []store.Payment
	return none[:1:1], nil // out of range
}

// PaymentsOfOrder finds nothing.
func (nobody) PaymentsOfOrder(context.Context, store.OrderQuery) ([]store.Payment, error) {
	return nil, nil
}

// Story fails.
func (nobody) Story(context.Context, uuid.UUID, int) (store.Status, error) {
	return store.Status{}, errors.New("no database")
}

func newNobody(t *testing.T, change func(*Config)) *Server {
	t.Helper()
	cfg := Config{Callers: NewStaticCallers(map[string]Caller{"t": {Name: "shop"}}), Sender: nobody{}, Reader: nobody{}}
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg)
	require.NoError(t, err)
	return s
}

func serve(s *Server, method, path string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, http.NoBody)
	r.Header.Set("Authorization", "Bearer t")
	w := httptest.NewRecorder()
	s.handler().ServeHTTP(w, r)
	return w
}

// A request that breaks its handler is answered, and gives its place back.
func TestBrokenHandlersAnswer(t *testing.T) {
	t.Parallel()
	s := newNobody(t, func(c *Config) { c.MaxInFlight = 1 })
	for range 3 {
		w := serve(s, http.MethodGet, "/v1/payments/"+uuid.NewString())
		require.Equal(t, http.StatusInternalServerError, w.Code)
		require.Contains(t, w.Body.String(), string(CodeInternal))
		require.NotContains(t, w.Body.String(), "range", "what broke is ours to know")
	}
	require.Equal(t, http.StatusServiceUnavailable, serve(s, http.MethodGet, "/v1/payments/"+uuid.NewString()+"/history").Code)
	require.Equal(t, http.StatusOK, serve(s, http.MethodGet, "/v1/payments?order=a").Code)
	require.Equal(t, http.StatusNotFound, serve(s, http.MethodPost, "/v1/callbacks/sim").Code)
	require.Equal(t, "GET, HEAD, POST", serve(s, http.MethodPut, "/v1/payments").Header().Get("Allow"))

	s.free <- struct{}{}
	require.Contains(t, serve(s, http.MethodGet, "/openapi.json").Body.String(), string(CodeOverloaded))
}

// Whoever sends callbacks that never end takes the places of callbacks, and of nobody's payments.
func TestStrangersStopNoPayments(t *testing.T) {
	t.Parallel()
	inside, release := make(chan struct{}), make(chan struct{})
	s := newNobody(t, func(c *Config) {
		c.MaxInFlight = 4
		c.Callbacks = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			inside <- struct{}{}
			<-release
		})
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		serve(s, http.MethodPost, "/v1/callbacks/sim")
	}()
	<-inside
	require.Contains(t, serve(s, http.MethodPost, "/v1/callbacks/sim").Body.String(), string(CodeOverloaded))
	for range 3 { // others' payments, under way
		s.free <- struct{}{}
	}
	require.Equal(t, http.StatusOK, serve(s, http.MethodGet, "/v1/payments?order=a").Code)
	close(release)
	<-ended
}

// unborn knows no payment.
type unborn struct{ nobody }

// Look finds nothing.
func (unborn) Look(context.Context, []uuid.UUID) ([]store.Payment, error) { return nil, nil }

// A caller whose requests wait in a quarter of the places is answered at once; others wait on.
func TestWaitersLeaveRoomForOtherCallers(t *testing.T) {
	t.Parallel()
	s := newNobody(t, func(c *Config) {
		c.MaxInFlight, c.Reader, c.MaxWait = 8, unborn{}, 5*time.Minute
		c.Callers = NewStaticCallers(map[string]Caller{"t": {Name: "shop"}, "u": {Name: "kiosk"}})
	})
	ask := func(token string) (granted string) {
		r := httptest.NewRequest(http.MethodGet, "/v1/payments/"+uuid.NewString(), http.NoBody)
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Prefer", "wait=300")
		w := httptest.NewRecorder()
		s.handler().ServeHTTP(w, r)
		return w.Header().Get("Preference-Applied")
	}
	var waiting sync.WaitGroup
	for _, token := range []string{"t", "t", "u"} {
		waiting.Go(func() { ask(token) })
	}
	require.Eventually(t, func() bool {
		s.watch.mu.Lock()
		defer s.watch.mu.Unlock()
		return len(s.watch.waits) == 3
	}, 90*time.Second, time.Millisecond)
	answered := make(chan string, 1)
	go func() { answered <- ask("t") }()
	select {
	case granted := <-answered:
		require.Equal(t, "wait=0", granted)
	case <-time.After(time.Minute):
		t.Error("the third of this caller waits as well")
	}
	close(s.draining)
	waiting.Wait()
	require.Empty(t, s.waiters.of)
}

func TestConfigSaysWhatToChange(t *testing.T) {
	t.Parallel()
	for sentence, change := range map[string]func(*Config){
		"give all three":          func(c *Config) { c.Reader = nil },
		"waits 1m0s by default":   func(c *Config) { c.Wait = time.Minute },
		"use at most 5m":          func(c *Config) { c.MaxWait = time.Hour },
		"publish timeout":         func(c *Config) { c.PublishTimeout = -1 },
		"takes no request":        func(c *Config) { c.MaxInFlight = -1 },
		"drain delay is negative": func(c *Config) { c.DrainDelay = -1 },
	} {
		cfg := Config{Callers: NewStaticCallers(nil), Sender: nobody{}, Reader: nobody{}}
		change(&cfg)
		_, err := New(cfg)
		require.ErrorContains(t, err, sentence)
	}
}

// Every code has a status and a title, and a rejection that is newer than the
// table is still one.
func TestEveryCodeIsInTheTable(t *testing.T) {
	t.Parallel()
	for code, kind := range kinds {
		require.GreaterOrEqual(t, kind.status, 400, code)
		require.NotEmpty(t, kind.title, code)
	}
	problem := rejection(&store.Payment{State: payment.Rejected, Cause: "NEWER_THAN_THIS"})
	require.Equal(t, http.StatusConflict, problem.Status)
	require.Equal(t, Code("NEWER_THAN_THIS"), problem.Code)
}

package demo

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/check"
	"github.com/settleonce/settleonce/internal/fleet"
	"github.com/settleonce/settleonce/payment"
)

// clients are the upstream services that speak HTTP: each sends its request, with
// the same key, until it has an answer.
type clients struct {
	seed   uint64
	share  int // of the payments, in percent
	urls   []string
	tokens map[string]string // by caller
	http   *http.Client
	places chan struct{}
	tasks  sync.WaitGroup

	mu     sync.Mutex
	told   []check.Told
	open   int // requests without an answer yet
	served int // commands that were answered
	// tries counts what single requests came to, by status or error.
	tries map[string]int
	faint bool // an error of the edge's own was seen
}

const (
	// clientsAtOnce bounds the requests under way.
	clientsAtOnce = 256
	// clientPatience is how long a client waits beyond what it asked the edge to wait.
	clientPatience = 6 * time.Second
	// clientPause is the pause before a request is sent again.
	clientPause = 300 * time.Millisecond
)

func newClients(seed uint64, share int, urls []string, tokens map[string]string) *clients {
	return &clients{
		seed: seed, share: share, urls: urls, tokens: tokens, places: make(chan struct{}, clientsAtOnce), tries: map[string]int{},
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clientsAtOnce, IdleConnTimeout: 5 * time.Second}},
	}
}

// takes reports whether a command goes over HTTP. The seed decides, payment by
// payment; what is wrong in itself would be refused before Kafka.
func (c *clients) takes(cmd *payment.Command) bool {
	if c == nil || cmd == nil || cmd.Amount <= 0 || c.tokens[cmd.Caller] == "" {
		return false
	}
	return c.random(cmd, 1).IntN(100) < c.share
}

// random is the same for the same payment and purpose.
func (c *clients) random(cmd *payment.Command, purpose uint64) *rand.Rand {
	id := cmd.Identity().PaymentID()
	return rand.New(rand.NewPCG(c.seed^binary.LittleEndian.Uint64(id[:8]), purpose))
}

// request is one submission, and how its client goes about it.
type request struct {
	command payment.Command
	sum     payment.Fingerprint
	wait    string // Prefer, empty for the edge's own
	first   int    // gateway to try first
	// look and again are done after a 202: ask what became of it, send it once more.
	look, again bool
	// token is shown instead of the caller's own, and posed says what it is.
	token, posed string
}

// submit sends a command in the background; some clients send it twice at once, some
// another amount beside it.
func (c *clients) submit(ctx context.Context, cmd *payment.Command) {
	random := c.random(cmd, 2)
	sum, err := cmd.Fingerprint()
	if err != nil {
		return // the script makes none such
	}
	r := request{
		command: *cmd, sum: sum, first: random.IntN(len(c.urls)), look: random.IntN(3) == 0, again: random.IntN(3) == 0,
		wait: []string{"", "", "wait=0", "wait=3"}[random.IntN(4)],
	}
	c.start(ctx, r, true)
	switch random.IntN(12) {
	case 0, 1:
		r.first++
		c.start(ctx, r, false)
	case 2:
		r.first++
		r.command.Amount++
		if r.sum, err = r.command.Fingerprint(); err == nil {
			c.start(ctx, r, false)
		}
	}
}

func (c *clients) start(ctx context.Context, r request, counts bool) {
	c.mu.Lock()
	c.open++
	c.mu.Unlock()
	c.tasks.Go(func() {
		answered := c.pursue(ctx, r)
		c.mu.Lock()
		defer c.mu.Unlock()
		if !answered {
			return // the run is over, and says what is open
		}
		c.open--
		if counts {
			c.served++
		}
	})
}

// pursue sends a request until it is answered, and does what its client does then.
func (c *clients) pursue(ctx context.Context, r request) bool {
	if r.posed != "" {
		_, ok := c.insist(ctx, r, r.look)
		return ok
	}
	told, ok := c.insist(ctx, r, false)
	if !ok || told.Status != http.StatusAccepted {
		return ok
	}
	if r.look {
		if _, ok = c.insist(ctx, r, true); !ok {
			return false
		}
	}
	if r.again {
		_, ok = c.insist(ctx, r, false)
	}
	return ok
}

// insist tries one gateway after the other until one answers.
func (c *clients) insist(ctx context.Context, r request, look bool) (check.Told, bool) {
	for n := r.first; ctx.Err() == nil; n++ {
		told, err := c.try(ctx, c.urls[n%len(c.urls)], &r, look)
		if ctx.Err() != nil {
			break
		}
		c.note(&told, err)
		if err == nil && conclusive(told.Status, look && r.posed == "") {
			c.mu.Lock()
			c.told = append(c.told, told)
			c.mu.Unlock()
			return told, true
		}
		if !fleet.Pause(ctx, clientPause) {
			break
		}
	}
	return check.Told{}, false
}

// conclusive reports whether a client has its answer. What is not judged yet is not
// found.
func conclusive(status int, look bool) bool {
	switch {
	case status >= http.StatusInternalServerError, status == http.StatusTooManyRequests, status == http.StatusRequestTimeout:
		return false
	case look && status == http.StatusNotFound:
		return false
	}
	return true
}

// note counts what a try came to. An error that the edge does not know itself is an
// answer to be judged.
func (c *clients) note(told *check.Told, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.tries["no answer"]++
		return
	}
	c.tries[strconv.Itoa(told.Status)]++
	if told.Status == http.StatusInternalServerError && !c.faint {
		c.faint = true
		c.told = append(c.told, *told)
	}
}

// try sends a request once.
func (c *clients) try(ctx context.Context, url string, r *request, look bool) (check.Told, error) {
	select {
	case c.places <- struct{}{}:
	case <-ctx.Done():
		return check.Told{}, ctx.Err()
	}
	defer func() { <-c.places }()
	ctx, cancel := context.WithTimeout(ctx, clientPatience)
	defer cancel()
	method, body := http.MethodPost, r.command.AppendJSON(nil)
	url += "/v1/payments"
	if look {
		method, body, url = http.MethodGet, nil, url+"/"+r.command.IdempotencyKey.String()
	}
	out, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return check.Told{}, err
	}
	out.Header.Set("Authorization", "Bearer "+cmp.Or(r.token, c.tokens[r.command.Caller]))
	out.Header.Set("Content-Type", "application/json")
	if !look {
		out.Header.Set("Idempotency-Key", r.command.IdempotencyKey.String())
	}
	if r.wait != "" {
		out.Header.Set("Prefer", r.wait)
	}
	in, err := c.http.Do(out)
	if err != nil {
		return check.Told{}, err
	}
	defer in.Body.Close()
	return c.read(in, r, look)
}

// read takes an answer, which must have come whole.
func (c *clients) read(in *http.Response, r *request, look bool) (check.Told, error) {
	type shown struct {
		PaymentID uuid.UUID  `json:"paymentId"`
		State     string     `json:"state"`
		Reference string     `json:"providerReference"`
		BlockedBy *uuid.UUID `json:"blockedBy"`
	}
	var body struct {
		shown

		Code    payment.Code `json:"code"`
		Payment *shown       `json:"payment"`
	}
	text, err := io.ReadAll(in.Body)
	if err == nil {
		err = json.Unmarshal(text, &body)
	}
	if err != nil {
		return check.Told{}, fmt.Errorf("read the edge's answer: %w", err)
	}
	about := *cmp.Or(body.Payment, &body.shown)
	return check.Told{
		Caller: r.command.Caller, Key: r.command.IdempotencyKey, Sum: r.sum, Looked: look, Posed: r.posed, Status: in.StatusCode, Code: body.Code,
		Payment: about.PaymentID, State: about.State, Reference: about.Reference, BlockedBy: cmp.Or(body.BlockedBy, about.BlockedBy),
		Replayed: in.Header.Get("Idempotent-Replayed") == "true",
	}, nil
}

// progress is how many commands were answered, and how many requests were not yet.
func (c *clients) progress() (served, open int) {
	if c == nil {
		return 0, 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.served, c.open
}

// end waits for what is under way; call it when their context has ended.
func (c *clients) end() {
	if c == nil {
		return
	}
	c.tasks.Wait()
	c.http.CloseIdleConnections()
}

// answers are what they were told, and what single tries came to.
func (c *clients) answers() (told []check.Told, tries map[string]int) {
	if c == nil {
		return nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.told, maps.Clone(c.tries)
}

// callBack has a simulator send its callbacks to the url.
func callBack(ctx context.Context, sim, url, secret string) error {
	body, err := json.Marshal(map[string]string{"url": url, "secret": secret})
	if err != nil {
		return err
	}
	out, err := http.NewRequestWithContext(ctx, http.MethodPut, sim+"/admin/callbacks", bytes.NewReader(body))
	if err != nil {
		return err
	}
	in, err := http.DefaultClient.Do(out)
	if err != nil {
		return fmt.Errorf("tell the channel where callbacks go: %w", err)
	}
	defer in.Body.Close()
	if in.StatusCode != http.StatusOK {
		return errors.New("the channel does not take where callbacks go: " + in.Status)
	}
	return nil
}

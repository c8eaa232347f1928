package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/settleonce/settleonce/channel"
)

// CallbackTarget says where callbacks go.
type CallbackTarget struct {
	// URL takes them by POST; empty: none are sent.
	URL string `json:"url"`
	// Secret signs them. It is never shown.
	Secret string `json:"secret,omitempty"`
	// Echo says what they repeat of ours: everything (empty), "key" (the provider
	// key, not the payment id) or "reference" (only the provider's own id).
	Echo string `json:"echo,omitempty"`
}

// Validate reports what to change.
func (t CallbackTarget) Validate() error {
	if t.URL == "" {
		return nil
	}
	u, err := url.Parse(t.URL)
	switch {
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "":
		return errors.New("the callback url is not a web address: write it like http://localhost:8080/v1/callbacks/sim")
	case t.Secret == "":
		return errors.New("callbacks need a secret to be signed with: set the one that the channel has as callback-secret")
	}
	switch echo(t.Echo) {
	case echoAll, echoKey, echoReference:
		return nil
	}
	return errors.New("echo is not known: use key or reference, or leave it empty")
}

// CallbackCounts count deliveries since the start.
type CallbackCounts struct {
	// Sent counts requests, again and forged ones included.
	Sent int64 `json:"sent"`
	// Acknowledged were answered 2xx, Refused otherwise; Failed got no answer.
	Acknowledged int64 `json:"acknowledged"`
	Refused      int64 `json:"refused"`
	Failed       int64 `json:"failed"`
	// GivenUp counts callbacks that were never acknowledged.
	GivenUp int64 `json:"givenUp"`
	// ForgedAcknowledged counts forged or stale ones that were answered 2xx, which
	// must not be.
	ForgedAcknowledged int64 `json:"forgedAcknowledged"`
	// Waiting counts callbacks that are on their way.
	Waiting int64 `json:"waiting"`
}

// callbackState is what GET /admin/callbacks shows.
type callbackState struct {
	URL    string         `json:"url"`
	Echo   string         `json:"echo,omitempty"`
	Signed bool           `json:"signed"`
	Counts CallbackCounts `json:"counts"`
}

const (
	// postingsAtOnce bounds the callbacks under way.
	postingsAtOnce = 64
	// deliveryTimeout is the deadline of one delivery.
	deliveryTimeout = 5 * time.Second
	// deliveryTries is how often a callback is sent until it is acknowledged.
	deliveryTries = 60
	// firstRedelivery and lastRedelivery bound the pauses in between, which double.
	firstRedelivery = 100 * time.Millisecond
	lastRedelivery  = 2 * time.Second
)

// newsroom sends callbacks.
type newsroom struct {
	target atomic.Pointer[CallbackTarget] // nil: none are sent
	places chan struct{}
	client *http.Client
	// alive ends with the server.
	alive context.Context //nolint:containedctx // the life of what is under way, which is no caller's
	cut   context.CancelFunc

	sent, acknowledged, refused, failed, givenUp, forgedTaken, waiting atomic.Int64
}

func newNewsroom() *newsroom {
	alive, cut := context.WithCancel(context.Background())
	return &newsroom{
		alive: alive, cut: cut, places: make(chan struct{}, postingsAtOnce),
		client: &http.Client{
			Timeout: deliveryTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: postingsAtOnce, IdleConnTimeout: 30 * time.Second},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// SetCallbacks changes where callbacks go from now on.
func (s *Server) SetCallbacks(target CallbackTarget) error {
	if err := target.Validate(); err != nil {
		return err
	}
	if target.URL == "" {
		s.news.target.Store(nil)
		return nil
	}
	s.news.target.Store(&target)
	return nil
}

// CallbackCounts returns the counts of deliveries.
func (s *Server) CallbackCounts() CallbackCounts {
	n := s.news
	return CallbackCounts{
		Sent: n.sent.Load(), Acknowledged: n.acknowledged.Load(), Refused: n.refused.Load(), Failed: n.failed.Load(),
		GivenUp: n.givenUp.Load(), ForgedAcknowledged: n.forgedTaken.Load(), Waiting: n.waiting.Load(),
	}
}

func (s *Server) getCallbacks(w http.ResponseWriter, _ *http.Request) {
	state := callbackState{Counts: s.CallbackCounts()}
	if target := s.news.target.Load(); target != nil {
		state.URL, state.Echo, state.Signed = target.URL, target.Echo, true
	}
	writeJSON(w, http.StatusOK, state)
}

func (s *Server) putCallbacks(w http.ResponseWriter, r *http.Request) {
	var target CallbackTarget
	err := readJSON(r, &target)
	if err == nil {
		err = s.SetCallbacks(target)
	}
	if err != nil {
		writeJSON(w, http.StatusBadRequest, err.Error())
		return
	}
	s.getCallbacks(w, r)
}

// deliver sends the postings one after the other; the channel is closed when all
// were sent or given up.
func (s *Server) deliver(list []posting) <-chan struct{} {
	done := make(chan struct{})
	s.news.waiting.Add(int64(len(list)))
	s.tasks.Go(func() {
		defer close(done)
		for i := range list {
			s.post(&list[i])
			s.news.waiting.Add(-1)
		}
	})
	return done
}

// post sends one callback until it is acknowledged.
func (s *Server) post(p *posting) {
	if s.wait(context.Background(), p.after) != nil {
		return
	}
	pause := firstRedelivery
	for range deliveryTries {
		if s.attempt(p) || p.once {
			return
		}
		if s.wait(context.Background(), pause) != nil {
			return
		}
		pause = min(2*pause, lastRedelivery)
	}
	s.news.givenUp.Add(1)
}

// attempt makes one delivery; the signature is made anew each time.
func (s *Server) attempt(p *posting) bool {
	select {
	case s.news.places <- struct{}{}:
	case <-s.stop:
		return true
	}
	defer func() { <-s.news.places }()
	target := s.news.target.Load()
	if target == nil {
		return true
	}
	status, err := s.news.send(target, p)
	s.news.count(p, status, err)
	return err == nil && taken(status)
}

func (n *newsroom) send(target *CallbackTarget, p *posting) (int, error) {
	body, secret := p.raw, target.Secret
	if body == nil {
		var err error
		if body, err = json.Marshal(p.body.named(echo(target.Echo))); err != nil {
			return 0, err
		}
	}
	if p.forged {
		secret += "-of-somebody-else"
	}
	request, err := http.NewRequestWithContext(n.alive, http.MethodPost, target.URL, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set(CallbackHeader, channel.SignCallback(secret, time.Now().Add(-p.age), body))
	n.sent.Add(1)
	response, err := n.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxBody))
	return response.StatusCode, nil
}

func (n *newsroom) count(p *posting, status int, err error) {
	switch {
	case err != nil:
		n.failed.Add(1)
	case !taken(status):
		n.refused.Add(1)
	default:
		n.acknowledged.Add(1)
		if p.forged || p.age > channel.DefaultCallbackAge || p.raw != nil {
			n.forgedTaken.Add(1)
		}
	}
}

// taken reports whether a status acknowledges.
func taken(status int) bool { return status >= http.StatusOK && status < http.StatusMultipleChoices }

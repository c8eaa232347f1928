package torture

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/internal/fleet"
)

// provider is one of the channels of a run: the simulator behind it, and the
// stretch of network before it.
type provider struct {
	name  string
	url   string // of the simulator itself
	proxy *proxy

	mu    sync.Mutex
	rates map[sim.Kind]int // that are on, and how many want them
}

// struckChannel is the one that a strike is at.
func (t *tormentor) struckChannel(s strike) *provider { return t.channels[s.channel%len(t.channels)] }

// misbehave makes a channel misbehave in one way, in a third of the requests.
func (t *tormentor) misbehave(ctx context.Context, s strike) error {
	p := t.struckChannel(s)
	p.want(s.kind, 1)
	err := p.setRates(ctx)
	fleet.Pause(ctx, s.lasts)
	p.want(s.kind, -1)
	if healErr := p.setRates(ctx); err == nil {
		err = healErr
	}
	return err
}

func (p *provider) want(kind sim.Kind, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rates == nil {
		p.rates = map[sim.Kind]int{}
	}
	if p.rates[kind] += n; p.rates[kind] <= 0 {
		delete(p.rates, kind)
	}
}

// setRates tells the channel which faults are on now. Those that are off get the
// rate 0: a change adds to what is there.
func (p *provider) setRates(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock() // the last word is the latest
	var rates []string
	for _, kind := range kinds {
		rate := "0"
		if p.rates[kind] > 0 {
			rate = "0.3"
		}
		rates = append(rates, fmt.Sprintf("%q:%s", kind, rate))
	}
	return p.order(context.WithoutCancel(ctx), http.MethodPatch, "/admin/behaviour", `{"rates":{`+strings.Join(rates, ",")+`}}`)
}

// order tells the simulator what to do.
func (p *provider) order(ctx context.Context, method, page, body string) error {
	const patience = 20 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, p.url+page, strings.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body) // it says more, if anything
		return fmt.Errorf("the channel %s answers %s: %s", p.name, response.Status, text)
	}
	return nil
}

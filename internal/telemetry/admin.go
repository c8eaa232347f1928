package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"
)

const (
	// checkTimeout bounds one check, checkTTL how often it runs: probes of
	// several supervisors must not become load.
	checkTimeout = 2 * time.Second
	checkTTL     = time.Second
	// closeTimeout bounds the answers under way at the end.
	closeTimeout = 2 * time.Second
)

// Check looks at one thing that must work. It obeys its context.
type Check func(ctx context.Context) error

// AdminConfig says where the admin endpoints are served.
type AdminConfig struct {
	// Address is host:port; port 0 takes a free one. Required.
	Address string
	// PProf serves /debug/pprof too. Defaults to false.
	PProf bool
	// Metrics are served at /metrics. Required.
	Metrics *Metrics
	// Log is told where it listens. Defaults to nothing.
	Log zerolog.Logger
}

// Admin serves /healthz, /readyz, /metrics and, if wanted, /debug/pprof.
//
// /healthz fails when the process should be started again, /readyz when it does
// no work at the moment: a supervisor that restarts workers because the
// database is away makes the outage worse.
type Admin struct {
	cfg    AdminConfig
	server *http.Server

	listener net.Listener
	live     checks
	ready    checks
}

// NewAdmin returns a server that does not listen yet.
func NewAdmin(cfg AdminConfig) (*Admin, error) {
	if cfg.Metrics == nil {
		return nil, errors.New("admin endpoints: there are no metrics, give some")
	}
	a := &Admin{cfg: cfg}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", a.live.serve)
	mux.HandleFunc("GET /readyz", a.ready.serve)
	mux.Handle("GET /metrics", promhttp.HandlerFor(cfg.Metrics.Registry(), promhttp.HandlerOpts{Timeout: 2 * snapshotTimeout}))
	writeTimeout := 10 * time.Second
	if cfg.PProf {
		handleProfiles(mux)
		writeTimeout = 2 * time.Minute // a profile takes 30 s by default
	}
	a.server = &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second,
		WriteTimeout: writeTimeout, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
	return a, nil
}

func handleProfiles(mux *http.ServeMux) {
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
}

// Live adds a check to /healthz; a failure means "start me again".
func (a *Admin) Live(name string, check Check) { a.live.add(name, check) }

// Ready adds a check to /readyz.
func (a *Admin) Ready(name string, check Check) { a.ready.add(name, check) }

// Drain makes /readyz fail from now on.
func (a *Admin) Drain() {
	a.Ready("draining", func(context.Context) error { return errors.New("shutting down") })
}

// Listen takes the address, so that Address is known before Run.
func (a *Admin) Listen(ctx context.Context) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", a.cfg.Address)
	if err != nil {
		return fmt.Errorf("listen on admin-address, choose a free one: %w", err)
	}
	a.listener = l
	return nil
}

// Address is where it listens, host:port; empty before Listen.
func (a *Admin) Address() string {
	if a.listener == nil {
		return ""
	}
	return a.listener.Addr().String()
}

// Run serves until ctx ends. It needs Listen before.
func (a *Admin) Run(ctx context.Context) error {
	if a.listener == nil {
		return errors.New("admin endpoints: not listening, call Listen first")
	}
	a.cfg.Log.Info().Str("address", a.Address()).Msg("serving health and metrics")
	ended := make(chan error, 1)
	go func() { ended <- a.server.Serve(a.listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve admin endpoints: %w", err)
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	err := a.server.Shutdown(closing)
	if err != nil {
		err = errors.Join(fmt.Errorf("close admin endpoints: %w", err), a.server.Close())
	}
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// checks is a list of checks behind one endpoint, with a short memory.
type checks struct {
	mu     sync.Mutex
	names  []string
	checks []Check
	at     time.Time
	report report
}

// report is the body of /healthz and /readyz.
type report struct {
	Status string            `json:"status"`
	Checks map[string]string `json:"checks,omitempty"`
}

func (c *checks) add(name string, check Check) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names, c.checks = append(c.names, name), append(c.checks, check)
	c.at = time.Time{}
}

func (c *checks) serve(w http.ResponseWriter, r *http.Request) {
	result := c.run(r.Context())
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if result.Status != "ok" {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	body, err := json.Marshal(result)
	if err != nil {
		return // strings always marshal
	}
	_, _ = w.Write(append(body, '\n')) // the peer is gone, nobody to tell
}

func (c *checks) run(ctx context.Context) report {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.at) < checkTTL {
		return c.report
	}
	// The answer is kept for others, so it must not depend on this peer's patience.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
	defer cancel()
	results := make([]string, len(c.checks))
	var wg sync.WaitGroup
	for i, check := range c.checks {
		wg.Go(func() { results[i] = verdict(check(ctx)) })
	}
	wg.Wait()
	c.report = report{Status: "ok", Checks: make(map[string]string, len(results))}
	for i, result := range results {
		c.report.Checks[c.names[i]] = result
		if result != "ok" {
			c.report.Status = "failing"
		}
	}
	c.at = time.Now()
	return c.report
}

func verdict(err error) string {
	if err != nil {
		return err.Error()
	}
	return "ok"
}

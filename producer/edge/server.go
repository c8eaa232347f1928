package edge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// bodyTimeout bounds reading a request, answerTimeout writing its answer beyond
	// what it may wait.
	bodyTimeout   = 15 * time.Second
	answerTimeout = 15 * time.Second
	idleTimeout   = time.Minute
	// closeTimeout bounds the answers under way at the end: waiting ones are ended.
	closeTimeout = 10 * time.Second
	// strangersShare is the part of MaxInFlight that callbacks have beside it.
	strangersShare = 4
	// maxHeaderBytes bounds the header of a request.
	maxHeaderBytes = 16 << 10
)

// Server is one HTTP edge.
type Server struct {
	cfg      Config
	watch    *watcher
	waiters  *waiters
	free     chan struct{} // one token per request under way
	door     chan struct{} // the same for strangers' requests, apart: slow ones must not stop payments
	stories  chan struct{} // one per history that is read
	server   *http.Server
	listener net.Listener
	// draining is closed when nobody may wait any longer.
	draining chan struct{}
}

// New validates cfg and returns an edge that does not listen yet.
func New(cfg Config) (*Server, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, watch: newWatcher(cfg.Reader.Look, cfg.Logger), waiters: newWaiters(cfg.MaxInFlight), free: make(chan struct{}, cfg.MaxInFlight),
		door:    make(chan struct{}, max(cfg.MaxInFlight/strangersShare, 1)),
		stories: make(chan struct{}, storiesAtOnce), draining: make(chan struct{}),
	}
	s.server = &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: bodyTimeout,
		WriteTimeout: bodyTimeout + cfg.PublishTimeout + cfg.MaxWait + answerTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes, TLSConfig: cfg.TLS,
		ErrorLog: log.New(io.Discard, "", 0), // broken connections and handshakes are the peers' affair
	}
	return s, nil
}

// Listen takes the address, so that Address is known before Run.
func (s *Server) Listen(ctx context.Context) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", s.cfg.Address)
	if err != nil {
		return fmt.Errorf("listen for HTTP, choose a free address: %w", err)
	}
	s.listener = l
	return nil
}

// Address is where it listens, host:port; empty before Listen.
func (s *Server) Address() string {
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// URL is the address for clients on this machine; empty before Listen.
func (s *Server) URL() string {
	if s.listener == nil {
		return ""
	}
	scheme := "http://"
	if s.cfg.TLS != nil {
		scheme = "https://"
	}
	_, port, err := net.SplitHostPort(s.Address())
	if err != nil {
		return scheme + s.Address()
	}
	return scheme + net.JoinHostPort("127.0.0.1", port)
}

// Run serves until ctx ends. Then it goes on for DrainDelay, answers who waits
// with what is known, and ends when the last answer has left. It needs Listen
// before.
func (s *Server) Run(ctx context.Context) error {
	if s.listener == nil {
		return errors.New("the edge does not listen, call Listen first")
	}
	s.cfg.Logger.Info().Str("url", s.URL()).Msg("serving payments over HTTP")
	watching, endWatch := context.WithCancel(context.WithoutCancel(ctx))
	var group errgroup.Group
	group.Go(func() error {
		s.watch.run(watching)
		return nil
	})
	served := make(chan error, 1)
	group.Go(func() error {
		served <- s.serve()
		return nil
	})
	err := s.untilEnd(ctx, served)
	endWatch()
	return errors.Join(err, group.Wait())
}

func (s *Server) serve() error {
	if s.cfg.TLS != nil {
		return s.server.ServeTLS(s.listener, "", "")
	}
	return s.server.Serve(s.listener)
}

func (s *Server) untilEnd(ctx context.Context, served <-chan error) error {
	select {
	case err := <-served:
		close(s.draining)
		return fmt.Errorf("serve HTTP: %w", err)
	case <-ctx.Done():
	}
	delay := time.NewTimer(s.cfg.DrainDelay)
	defer delay.Stop()
	<-delay.C
	close(s.draining)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout+s.cfg.PublishTimeout)
	defer cancel()
	err := s.server.Shutdown(closing)
	if err != nil {
		err = errors.Join(fmt.Errorf("end the HTTP edge: %w", err), s.server.Close())
	}
	if end := <-served; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, end)
	}
	return err
}

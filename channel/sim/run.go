package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

const (
	// drainTime is what requests under way get when the server stops; what is held
	// longer is dropped.
	drainTime = 2 * time.Second
	// dropTime is what dropping them may take.
	dropTime = time.Second
)

// Config says how to run a server.
type Config struct {
	// Addr is the address to listen on. Defaults to 127.0.0.1:8090.
	Addr string
	// LedgerPath is the ledger's file; empty keeps the ledger in memory only.
	LedgerPath string
	// Behaviour is what the server does at first.
	Behaviour Behaviour
	// Callbacks says where callbacks go at first; PUT /admin/callbacks changes it.
	// Defaults to nowhere.
	Callbacks CallbackTarget
	// Ready, if set, is called once with the server and its address when it listens.
	Ready func(s *Server, addr net.Addr)
}

// Run serves until the context ends, then lets requests under way finish for two
// seconds, drops what is still held, and closes the ledger.
func Run(ctx context.Context, config Config) error {
	server, err := NewServer(config.LedgerPath, config.Behaviour)
	if err != nil {
		return fmt.Errorf("open sandbox channel: %w", err)
	}
	if err := server.SetCallbacks(config.Callbacks); err != nil {
		return errors.Join(err, server.Close())
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", cmp.Or(config.Addr, "127.0.0.1:8090"))
	if err != nil {
		return errors.Join(fmt.Errorf("listen for the sandbox channel: %w", err), server.Close())
	}
	if config.Ready != nil {
		config.Ready(server, listener.Addr())
	}
	return errors.Join(newFront(server, listener).serve(ctx), server.Close())
}

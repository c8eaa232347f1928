package childproc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are drawn from below the range that systems use for outgoing connections (from 32768 on Linux,
// 49152 on macOS), so that a server that is killed and started again finds its port still free.
const (
	lowestPort  = 10000
	highestPort = 32000
	portTries   = 100
)

// FreePort returns a port of 127.0.0.1 that nobody listens on now. On Linux no other call gets it, in
// whichever process, until this process ends, also while its server is away. Elsewhere, and from others
// who do not ask here, it may still be taken before the caller does, so a server that finds it taken
// should be started again on another.
func FreePort(ctx context.Context) (int, error) {
	var lastErr error
	for range portTries {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		if lastErr = reserve(port); lastErr != nil {
			continue
		}
		if lastErr = listenable(ctx, port); lastErr == nil {
			return port, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return 0, fmt.Errorf("find a free port on 127.0.0.1: %w", lastErr)
}

// FreePorts returns n different free ports.
func FreePorts(ctx context.Context, n int) ([]int, error) {
	ports := make([]int, 0, n)
	seen := make(map[int]bool, n)
	for len(ports) < n {
		port, err := FreePort(ctx)
		if err != nil {
			return nil, err
		}
		if !seen[port] {
			seen[port] = true
			ports = append(ports, port)
		}
	}
	return ports, nil
}

func listenable(ctx context.Context, port int) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return errors.Join(ctx.Err(), err)
	}
	return l.Close()
}

package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/settleonce/settleonce/internal/childproc"
)

// Gateway is a process of the HTTP edge.
type Gateway struct {
	*Child

	// URL is its address, which it keeps when it is started again.
	URL string
}

// StartGateway starts a gateway on a free port, and waits until it is ready. The
// number tells several apart.
func (f *Fleet) StartGateway(ctx context.Context, number int, env ...string) (*Gateway, error) {
	port, err := childproc.FreePort(ctx)
	if err != nil {
		return nil, fmt.Errorf("find a free port: %w", err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	own := []string{"SETTLEONCE_GATEWAY_LISTEN=" + address, "SETTLEONCE_GATEWAY_DRAIN_DELAY=0s"}
	child, err := f.StartWorker(ctx, "gateway", number, append(own, env...)...)
	return &Gateway{Child: child, URL: "http://" + address}, err
}

// AddCaller gives a caller a credential for the edge, as an operator would, and
// returns it.
func (f *Fleet) AddCaller(ctx context.Context, caller, namespace string) (bearer string, err error) {
	out, err := f.Command(ctx, "callers", "add", caller, "--namespace", namespace, "--actor", "fleet", "--output", "json")
	if err != nil {
		return "", err
	}
	var issued struct {
		Key string `json:"key"`
	}
	_, object, _ := strings.Cut(out, "{")
	if err := json.Unmarshal([]byte("{"+object), &issued); err != nil {
		return "", fmt.Errorf("read the credential of %s: %w", caller, err)
	}
	return issued.Key, nil
}

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/callers"
	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/producer"
	"github.com/settleonce/settleonce/producer/edge"
	"github.com/settleonce/settleonce/schemas"
)

func newGateway(p process) *cobra.Command {
	cmd := newRole(p, roleGateway, []string{roleGateway})
	cmd.Short = "Take payments and callbacks over HTTP"
	cmd.Long += "\n\nPayments go to Kafka before they are answered, and are judged by the consumer like any other: the gateway\n" +
		"holds nothing. Callers are those of `settleonce callers`. It is not part of `all`, which listens to nobody."
	offer(cmd, config.GroupCallers, config.GroupGateway, config.GroupChannel)
	return cmd
}

// gateway is the role of the HTTP edge. It listens at once, so that its address
// is known before anything runs.
func (r *roleSet) gateway(ctx context.Context) (func(context.Context) error, error) {
	sender, err := openProducer(ctx, r.cfg, "")
	if err != nil {
		return nil, err
	}
	cfg, err := r.edgeConfig(sender)
	if err == nil {
		r.edge, err = edge.New(cfg)
	}
	if err == nil {
		err = r.edge.Listen(ctx)
	}
	if err != nil {
		return nil, errors.Join(asUsage(err), sender.Close(ctx))
	}
	return func(ctx context.Context) error {
		err := r.edge.Run(ctx)
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), senderTimeout)
		defer cancel()
		return errors.Join(err, sender.Close(closing))
	}, nil
}

// senderTimeout bounds the end of the producer: nobody waits for it any more.
const senderTimeout = 5 * time.Second

func (r *roleSet) edgeConfig(sender *producer.Producer) (edge.Config, error) {
	g := &r.cfg.Gateway
	encryption, err := serverTLS(g)
	if err != nil {
		return edge.Config{}, err
	}
	since, err := g.KeysRequiredSince()
	if err != nil {
		return edge.Config{}, err
	}
	directory, err := callers.NewDirectory(callers.DirectoryConfig{Pool: r.pool})
	if err != nil {
		return edge.Config{}, err
	}
	callbacks, err := edge.NewCallbackHandler(edge.CallbackConfig{
		Channels: r.channels, Store: r.store, Metrics: r.metrics, Logger: r.log,
	})
	if err != nil {
		return edge.Config{}, err
	}
	document, err := schemas.OpenAPI()
	if err != nil {
		return edge.Config{}, err
	}
	return edge.Config{
		Address: g.Listen, TLS: encryption, Callers: withGuest{callers.NewEdge(directory), r.guest}, Sender: sender, Reader: r.store,
		Topic: r.topicOf, Callbacks: callbacks, OpenAPI: document, Wait: g.Wait, MaxWait: g.MaxWait, PublishTimeout: g.PublishTimeout,
		MaxInFlight: g.MaxInFlight, DrainDelay: g.DrainDelay, KeysSince: since, Metrics: r.metrics, Tracer: r.tracer, Logger: r.log,
	}, nil
}

// serverTLS reads the certificate, nil where there is none.
func serverTLS(g *config.Gateway) (*tls.Config, error) {
	if g.TLSCert == "" {
		return nil, nil //nolint:nilnil // no certificate is plain HTTP
	}
	certificate, err := tls.LoadX509KeyPair(g.TLSCert, g.TLSKey)
	if err != nil {
		return nil, fmt.Errorf("gateway-tls-cert and gateway-tls-key: give PEM files of one certificate and its key: %w", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}}, nil
}

// topicOf is the first command topic that may carry the caller's commands (G12).
func (r *roleSet) topicOf(caller string) (string, bool) {
	c, prefix := &r.cfg.Callers, r.cfg.Topics.Prefix
	for _, topic := range c.CommandTopics(prefix) {
		// Where the table lists the callers, the credential has shown that it is one.
		if c.InDatabase() && c.Carries(prefix, topic, caller) || !c.InDatabase() && c.May(prefix, topic, caller) {
			return topic, true
		}
	}
	return "", false
}

// withGuest lets one more caller in than the table lists: a development stack's.
type withGuest struct {
	edge.Callers

	guest *edge.StaticCallers // nil: nobody
}

// Authenticate knows the guest first.
func (w withGuest) Authenticate(ctx context.Context, bearer string) (edge.Caller, error) {
	if w.guest != nil {
		if caller, err := w.guest.Authenticate(ctx, bearer); err == nil {
			return caller, nil
		}
	}
	return w.Callers.Authenticate(ctx, bearer)
}

package config

import (
	"fmt"
	"time"
)

// Gateway tunes the HTTP edge.
type Gateway struct {
	Listen          string
	TLSCert, TLSKey string
	Wait, MaxWait   time.Duration
	PublishTimeout  time.Duration
	MaxInFlight     int
	DrainDelay      time.Duration
	// KeysSince is a day, like 2026-12-01; see KeysRequiredSince.
	KeysSince string
}

var gatewaySettings = []Setting{
	{
		Name: "gateway-listen", Group: GroupGateway, Default: ":8080",
		Doc:    "Where the HTTP edge listens.",
		target: func(c *Config) any { return &c.Gateway.Listen },
	},
	{
		Name: "gateway-tls-cert", Group: GroupGateway,
		Doc: "PEM file of the certificate, with those between it and the authority. Needs gateway-tls-key. Empty: plain HTTP, for " +
			"behind a proxy that ends TLS; credentials then cross the network behind it in the clear.",
		target: func(c *Config) any { return &c.Gateway.TLSCert },
	},
	{
		Name: "gateway-tls-key", Group: GroupGateway,
		Doc:    "PEM file of the certificate's key.",
		target: func(c *Config) any { return &c.Gateway.TLSKey },
	},
	{
		Name: "gateway-wait", Group: GroupGateway, Default: "1s",
		Doc: "How long a submitted payment is waited for before it is answered 202, where the request does not say (Prefer: wait=N). " +
			"Longer: more requests are open at once.",
		target: func(c *Config) any { return &c.Gateway.Wait },
	},
	{
		Name: "gateway-max-wait", Group: GroupGateway, Default: "30s",
		Doc:    "The longest wait that a request can ask for. Proxies in front must be more patient.",
		target: func(c *Config) any { return &c.Gateway.MaxWait },
	},
	{
		Name: "gateway-publish-timeout", Group: GroupGateway, Default: "5s",
		Doc:    "How long Kafka may take to acknowledge a payment before it is answered 503. It may be taken all the same: the client repeats it.",
		target: func(c *Config) any { return &c.Gateway.PublishTimeout },
	},
	{
		Name: "gateway-max-in-flight", Group: GroupGateway, Default: "4096",
		Doc:    "Requests at once, waiting ones included; more are answered 503. Each costs some 30 KiB.",
		target: func(c *Config) any { return &c.Gateway.MaxInFlight },
	},
	{
		Name: "gateway-drain-delay", Group: GroupGateway, Default: "2s",
		Doc: "How long requests are still taken after /readyz began to fail, so that load balancers notice. Then the ones under way are " +
			"answered, and the process ends.",
		target: func(c *Config) any { return &c.Gateway.DrainDelay },
	},
	{
		Name: "gateway-keys-since", Group: GroupGateway, Default: "2026-12-01",
		Doc: "Day on which sending no Idempotency-Key was declared deprecated: the Deprecation header of callers who may still leave it out " +
			"(`settleonce callers add --grace-until`).",
		target: func(c *Config) any { return &c.Gateway.KeysSince },
	},
}

var gatewayRules = []rule{
	{
		func(c *Config) bool { return !isAddress(c.Gateway.Listen) },
		"gateway-listen is not host:port: write it like :8080 or 127.0.0.1:8080",
	},
	{
		func(c *Config) bool { return (c.Gateway.TLSCert == "") != (c.Gateway.TLSKey == "") },
		"gateway-tls-cert and gateway-tls-key belong together: set both or none",
	},
	{
		func(c *Config) bool { return c.Gateway.MaxWait < time.Second || c.Gateway.MaxWait > 5*time.Minute },
		"gateway-max-wait is out of range: use 30s, 1s to 5m",
	},
	{
		func(c *Config) bool { return c.Gateway.Wait <= 0 || c.Gateway.Wait > c.Gateway.MaxWait },
		"gateway-wait must be above 0 and at most gateway-max-wait: use 1s",
	},
	{
		func(c *Config) bool {
			return c.Gateway.PublishTimeout < 100*time.Millisecond || c.Gateway.PublishTimeout > time.Minute
		},
		"gateway-publish-timeout is out of range: use 5s, 100ms to 1m",
	},
	{
		func(c *Config) bool { return c.Gateway.MaxInFlight < 1 },
		"gateway-max-in-flight is below 1: use 4096",
	},
	{
		func(c *Config) bool { return c.Gateway.DrainDelay < 0 || c.Gateway.DrainDelay > time.Minute },
		"gateway-drain-delay is out of range: use 2s, at most 1m",
	},
	{
		func(c *Config) bool {
			_, err := c.Gateway.KeysRequiredSince()
			return err != nil
		},
		"gateway-keys-since is not a day: write it like 2026-12-01",
	},
}

// KeysRequiredSince is KeysSince as a time, in UTC.
func (g *Gateway) KeysRequiredSince() (time.Time, error) {
	day, err := time.Parse(time.DateOnly, g.KeysSince)
	if err != nil {
		return time.Time{}, fmt.Errorf("gateway-keys-since: %q is not a day, write it like 2026-12-01", g.KeysSince)
	}
	return day, nil
}

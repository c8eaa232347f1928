package config

import "github.com/settleonce/settleonce/internal/tracing"

// Tracing says where spans go. An empty Endpoint is off.
type Tracing struct {
	Endpoint    string
	SampleRatio float64
	ServiceName string
}

var tracingSettings = []Setting{
	{
		Name: "tracing-endpoint", Group: GroupTracing,
		Doc: "OTLP/HTTP address of a collector for OpenTelemetry traces, like http://localhost:4318; without a path it gets /v1/traces. " +
			"Empty: off. Credentials and the like come from the usual variables (OTEL_EXPORTER_OTLP_HEADERS).",
		target: func(c *Config) any { return &c.Tracing.Endpoint },
	},
	{
		Name: "tracing-sample-ratio", Group: GroupTracing, Default: "1",
		Doc: "Part of the traces that are recorded, 0 to 1, of those that begin here: a command that comes with a traceparent keeps its " +
			"sender's decision.",
		target: func(c *Config) any { return &c.Tracing.SampleRatio },
	},
	{
		Name: "tracing-service-name", Group: GroupTracing, Default: "settleonce",
		Doc:    "service.name of the spans.",
		target: func(c *Config) any { return &c.Tracing.ServiceName },
	},
}

var tracingRules = []rule{
	{
		func(c *Config) bool { return tracing.CheckEndpoint(c.Tracing.Endpoint) != nil },
		"tracing-endpoint is not an address: write it like http://localhost:4318",
	},
	{
		func(c *Config) bool { return !(c.Tracing.SampleRatio >= 0 && c.Tracing.SampleRatio <= 1) },
		"tracing-sample-ratio is out of range: use 0 to 1",
	},
	{
		func(c *Config) bool { return c.Tracing.ServiceName == "" },
		"tracing-service-name is empty: use settleonce",
	},
}

package tracing

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Config says where spans go and how many are recorded.
type Config struct {
	// Endpoint is the OTLP/HTTP address of a collector, such as
	// http://localhost:4318; without a path it gets /v1/traces. Empty: off.
	Endpoint string
	// Ratio of the traces that begin here and are recorded, 0 to 1. A trace that
	// comes with a decision keeps it.
	Ratio float64
	// Service is service.name. Defaults to "settleonce".
	Service string
	// Version is service.version; empty for none.
	Version string
	// Logger is told what the exporter cannot deliver.
	Logger zerolog.Logger
}

// Tracer records steps. Nil is off: nothing is recorded, contexts are carried on.
// It is safe for concurrent use.
type Tracer struct {
	tracer   trace.Tracer
	provider *sdk.TracerProvider
	cut      func(context.Context) error // ends exports under way; nil where there are none
}

// Open returns a tracer that exports to the endpoint, nil without one. It starts
// the exporter's goroutine, which Close ends. It does not connect: a collector
// that is away costs its spans, and never holds up a payment.
func Open(ctx context.Context, cfg Config) (*Tracer, error) {
	if cfg.Endpoint == "" {
		return nil, nil //nolint:nilnil // nil is a tracer: off
	}
	endpoint, err := endpointURL(cfg.Endpoint)
	if err != nil {
		return nil, err
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(endpoint))
	if err != nil {
		return nil, fmt.Errorf("open the exporter of traces: %w", err)
	}
	// The library knows one place for its errors, for the whole process.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { cfg.Logger.Warn().Err(err).Msg("spans were lost; payments are not touched by it") }))
	t := New(cfg, sdk.NewBatchSpanProcessor(exporter))
	t.cut = exporter.Shutdown
	return t, nil
}

// New returns a tracer that hands its spans to the processor, whatever the
// endpoint is.
func New(cfg Config, processor sdk.SpanProcessor) *Tracer {
	attributes := []attribute.KeyValue{semconv.ServiceName(service(cfg.Service))}
	if cfg.Version != "" {
		attributes = append(attributes, semconv.ServiceVersion(cfg.Version))
	}
	limits := sdk.NewSpanLimits()
	limits.LinkCountLimit = maxLinks
	provider := sdk.NewTracerProvider(
		sdk.WithSpanProcessor(processor),
		sdk.WithSampler(sdk.ParentBased(linked{sdk.TraceIDRatioBased(cfg.Ratio)})),
		sdk.WithResource(resource.NewWithAttributes(semconv.SchemaURL, attributes...)),
		sdk.WithRawSpanLimits(limits),
	)
	return &Tracer{tracer: provider.Tracer("github.com/settleonce/settleonce", trace.WithSchemaURL(semconv.SchemaURL)), provider: provider}
}

func service(name string) string {
	if name == "" {
		return "settleonce"
	}
	return name
}

// closeTimeout bounds the last export: the process must end without a collector too.
const closeTimeout = 3 * time.Second

// Close exports what is left and ends the exporter. It needs no error: spans that
// are lost are logged.
func (t *Tracer) Close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	err := t.provider.Shutdown(ctx)
	if err != nil && t.cut != nil {
		err = errors.Join(err, t.cut(context.WithoutCancel(ctx)))
	}
	if err != nil {
		otel.Handle(err)
	}
}

// endpointURL completes the address of a collector.
func endpointURL(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil {
		return "", fmt.Errorf("tracing endpoint: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return "", errors.New("the tracing endpoint is not an address: write it like http://localhost:4318")
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	return u.String(), nil
}

// CheckEndpoint reports an address that Open would not take, and what to change.
// Empty is fine.
func CheckEndpoint(text string) error {
	if text == "" {
		return nil
	}
	_, err := endpointURL(text)
	return err
}

// maxLinks is the largest batch that a setting allows.
const maxLinks = 5000

// linked samples a root span that links to a sampled one: a transaction is
// recorded when one of its payments is.
type linked struct{ sdk.Sampler }

// ShouldSample decides about a root span.
func (l linked) ShouldSample(p sdk.SamplingParameters) sdk.SamplingResult {
	if len(p.Links) == 0 {
		return l.Sampler.ShouldSample(p)
	}
	return sdk.AlwaysSample().ShouldSample(p) // Batch links to sampled ones only
}

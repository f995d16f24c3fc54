package telemetry

import (
	"context"
	"crypto/tls"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// The exporters are the official ones; their own retries are off and their
// time-out is ours, so that every wait has one bound.

func (t *transport) client() *http.Client {
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

const exporterTimeout = time.Minute // the context of each export is shorter

type logExporter struct{ e sdklog.Exporter }

func (l logExporter) export(ctx context.Context, r []sdklog.Record) error { return l.e.Export(ctx, r) }
func (l logExporter) shutdown(ctx context.Context)                        { _ = l.e.Shutdown(ctx) }

func (t *transport) logExporter(ctx context.Context) (exporter[sdklog.Record], error) {
	var e sdklog.Exporter
	var err error
	if t.conn != nil {
		e, err = otlploggrpc.New(ctx, otlploggrpc.WithGRPCConn(t.conn), otlploggrpc.WithTimeout(exporterTimeout),
			otlploggrpc.WithRetry(otlploggrpc.RetryConfig{}))
	} else {
		e, err = otlploghttp.New(ctx, otlploghttp.WithEndpointURL(t.url.String()), otlploghttp.WithHTTPClient(t.client()),
			otlploghttp.WithTimeout(exporterTimeout), otlploghttp.WithRetry(otlploghttp.RetryConfig{}), otlploghttp.WithCompression(otlploghttp.NoCompression))
	}
	if err != nil {
		return nil, err
	}
	return logExporter{e}, nil
}

type spanExporter struct{ e sdktrace.SpanExporter }

func (s spanExporter) export(ctx context.Context, r []sdktrace.ReadOnlySpan) error {
	return s.e.ExportSpans(ctx, r)
}
func (s spanExporter) shutdown(ctx context.Context) { _ = s.e.Shutdown(ctx) }

func (t *transport) spanExporter(ctx context.Context) (exporter[sdktrace.ReadOnlySpan], error) {
	var e *otlptrace.Exporter
	var err error
	if t.conn != nil {
		e, err = otlptracegrpc.New(ctx, otlptracegrpc.WithGRPCConn(t.conn), otlptracegrpc.WithTimeout(exporterTimeout),
			otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{}))
	} else {
		e, err = otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(t.url.String()), otlptracehttp.WithHTTPClient(t.client()),
			otlptracehttp.WithTimeout(exporterTimeout), otlptracehttp.WithRetry(otlptracehttp.RetryConfig{}), otlptracehttp.WithCompression(otlptracehttp.NoCompression),
			otlptracehttp.WithEncoding(otlptracehttp.EncodingProtobuf))
	}
	if err != nil {
		return nil, err
	}
	return spanExporter{e}, nil
}

func (t *transport) metricExporter(ctx context.Context) (sdkmetric.Exporter, error) {
	if t.conn != nil {
		return otlpmetricgrpc.New(ctx, otlpmetricgrpc.WithGRPCConn(t.conn), otlpmetricgrpc.WithTimeout(exporterTimeout),
			otlpmetricgrpc.WithRetry(otlpmetricgrpc.RetryConfig{}))
	}
	return otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpointURL(t.url.String()), otlpmetrichttp.WithHTTPClient(t.client()),
		otlpmetrichttp.WithTimeout(exporterTimeout), otlpmetrichttp.WithRetry(otlpmetrichttp.RetryConfig{}), otlpmetrichttp.WithCompression(otlpmetrichttp.NoCompression))
}

// dial prepares the gRPC connection; it is made with the first export.
func (t *transport) dial(config *tls.Config) error {
	creds := credentials.NewTLS(config)
	if t.url.Scheme == "http" {
		creds = insecure.NewCredentials()
	}
	conn, err := grpc.NewClient(t.url.Host, grpc.WithTransportCredentials(creds), grpc.WithUnaryInterceptor(t.intercept),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(), grpc.WithNoProxy(), grpc.WithUserAgent("nightshift"))
	t.conn = conn
	return err
}

// intercept sets our headers instead of the exporter's and notes the answer.
func (t *transport) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	ctx = metadata.NewOutgoingContext(ctx, metadata.New(t.headers))
	err := invoke(ctx, method, req, reply, cc, opts...)
	if err == nil {
		t.last = partialOf(reply)
		return nil
	}
	o := outcome{err: &exportError{t.signal, t.url.Host, err}}
	switch status.Code(err) {
	case codes.Unavailable:
		o.again, o.refused = true, ctx.Err() == nil
	case codes.DeadlineExceeded, codes.Canceled, codes.Aborted, codes.OutOfRange, codes.DataLoss:
		o.again = true
	case codes.ResourceExhausted: // a collector that has no time says when it will; other ones find the request too large
		after, later := retryInfo(err)
		o.again, o.after, o.large = true, after, !later
	}
	t.last = o
	return err
}

// retryInfo reads when a collector wants to be asked again.
func retryInfo(err error) (after time.Duration, ok bool) {
	for _, d := range status.Convert(err).Details() {
		if info, is := d.(interface{ GetRetryDelay() *durationpb.Duration }); is {
			return min(max(info.GetRetryDelay().AsDuration(), 0), time.Hour), true
		}
	}
	return 0, false
}

type exportError struct {
	signal, host string
	err          error
}

func (e *exportError) Error() string { return e.signal + " to " + e.host + ": " + e.err.Error() }
func (e *exportError) Unwrap() error { return e.err }

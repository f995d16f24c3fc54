package telemetry

import (
	"net/url"
	"runtime"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
)

// resourceOf describes the program: what is built in, then
// OTEL_RESOURCE_ATTRIBUTES, then OTEL_SERVICE_NAME, the later ones winning as
// the specification has it.
func resourceOf(o *Options, host bool) *resource.Resource {
	env := o.Environment
	if env == "" {
		env = "dev"
	}
	list := []attribute.KeyValue{
		attribute.String("service.name", "nightshift"), attribute.String("service.version", o.Version), attribute.String("env", env),
		attribute.String("deployment.environment.name", env),
		attribute.String("telemetry.sdk.name", "opentelemetry"), attribute.String("telemetry.sdk.language", "go"),
		attribute.String("os", runtime.GOOS), attribute.String("host.arch", runtime.GOARCH),
	}
	if host && o.Host != "" {
		list = append(list, attribute.String("host.name", o.Host))
	}
	for pair := range strings.SplitSeq(o.ResourceAttributes, ",") {
		k, v, ok := strings.Cut(pair, "=")
		if k = strings.TrimSpace(k); !ok || k == "" {
			continue
		}
		if decoded, err := url.PathUnescape(strings.TrimSpace(v)); err == nil {
			list = append(list, attribute.String(k, decoded))
		}
	}
	if o.ServiceName != "" {
		list = append(list, attribute.String("service.name", o.ServiceName))
	}
	return resource.NewSchemaless(list...)
}

package policy

import (
	"fmt"
	"net/url"
	"strings"
)

// otel fills the exporters.
func (b *builder) otel() {
	o := &b.cfg.OTel
	o.Environment = b.str("otel", "environment")
	if o.Environment == "" {
		o.Environment = "dev"
	}
	o.Logs, o.Traces, o.Metrics = b.exporter("exporter"), b.exporter("trace_exporter"), b.exporter("metrics_exporter")
	o.LogUserPrompt = b.boolean(false, "otel", "log_user_prompt")
	o.LogAgentResponses = b.boolean(false, "otel", "log_agent_responses")
	o.LogToolOutput = b.boolean(false, "otel", "log_tool_output")
	o.ToolResultMaxBytes = int(b.integer(0, "otel", "tool_result", "max_bytes"))
	o.SpanAttributes = b.strmap("otel", "span_attributes")
	o.FlushTimeout = b.duration(b.root.get("otel", "flush_timeout"))
}

// exporter reads one of the three exporters. A word alone cannot say where to
// send; statsig is the vendor's own service and is never used.
func (b *builder) exporter(name string) Exporter {
	v := b.root.get("otel", name)
	key := "otel." + name
	bad := func(at *node, message, hint string) Exporter {
		k := KindUsage
		if at.layer != nil && at.layer.name == "requirements" {
			k = KindPolicy
		}
		b.fail(problem{at: at, key: key, message: key + " " + message, hint: hint}.err(k))
		return Exporter{}
	}
	switch {
	case v == nil || v.kind == kString && v.text == "none":
		return Exporter{Kind: "none"}
	case v.kind == kString && v.text == "statsig":
		return Exporter{Kind: "none"}
	case v.kind == kString:
		return bad(v, fmt.Sprintf("= %q does not say where to send to", v.text), fmt.Sprintf("write [otel.%s.%s] endpoint = \"https://…\"", name, v.text))
	case len(v.keys) != 1:
		return bad(v, "needs exactly one of otlp-http and otlp-grpc", "")
	}
	kind := v.keys[0]
	t := v.fields[kind]
	at := []string{"otel", name, kind}
	e := Exporter{
		Kind:     kind,
		Endpoint: b.str(append(at, "endpoint")...),
		Protocol: b.str(append(at, "protocol")...),
		Headers:  b.strmap(append(at, "headers")...),
	}
	for _, file := range []struct {
		key string
		to  *string
	}{{"ca-certificate", &e.CACertificate}, {"client-certificate", &e.ClientCertificate}, {"client-private-key", &e.ClientKey}} {
		if f := t.get("tls", file.key); f != nil {
			*file.to = b.resolve(f.text, f.layer)
			if !b.exists(*file.to) {
				return bad(f, fmt.Sprintf("names %s, which does not exist", *file.to), "")
			}
		}
	}
	if kind == "otlp-http" && e.Protocol == "" {
		e.Protocol = "binary"
	}
	if b.wasWrong(append(at, "endpoint")...) {
		return Exporter{}
	}
	if e.Endpoint == "" {
		return bad(t, "has no endpoint", "")
	}
	if u, err := url.Parse(e.Endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return bad(t, fmt.Sprintf("endpoint %q is not an http or https URL", e.Endpoint), "")
	}
	for _, header := range sortedKeys(e.Headers) {
		e.Headers[header] = b.expandVariables(header, e.Headers[header], t)
	}
	return e
}

// expandVariables puts in ${NAME}. A missing variable is empty, and told: the
// collector will refuse the records, long after the mistake.
func (b *builder) expandVariables(header, text string, at *node) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "${")
		out.WriteString(before)
		name, after, closed := strings.Cut(rest, "}")
		if !found {
			return out.String()
		}
		if !closed {
			out.WriteString("${" + rest)
			return out.String()
		}
		if b.src.LookupEnv != nil {
			value, ok := b.src.LookupEnv(name)
			if !ok {
				b.notice(Notice{Class: "otel_variable_unset", Origin: at.origin(),
					Message: fmt.Sprintf("%sthe telemetry header %s comes from the variable %s, which is not set", place(at), header, name)})
			}
			out.WriteString(value)
		}
		b.headerVariables = append(b.headerVariables, name)
		text = after
	}
}

// agents fills the limits and roles of sub-agents.
func (b *builder) agents() {
	a := &b.cfg.Agents
	a.MaxThreads, a.MaxDepth = int(b.integer(0, "agents", "max_threads")), int(b.integer(0, "agents", "max_depth"))
	if at := b.root.get("agents", "max_threads"); at != nil && at.kind == kInteger && a.MaxThreads == 0 {
		b.wrong(at, "agents.max_threads", "agents.max_threads must be at least 1", "to have no sub-agents, set agents.max_depth = 0")
	}
	if at := b.root.get("agents", "max_depth"); at != nil && at.kind == kInteger && a.MaxDepth == 0 {
		a.MaxDepth = -1
	}
	a.JobMaxRuntime = seconds(b.root.get("agents", "job_max_runtime_seconds"), 0)
	table := b.root.get("agents")
	if table == nil {
		return
	}
	a.Roles = map[string]AgentRole{}
	for _, name := range table.keys {
		v := table.fields[name]
		if v.kind != kTable {
			continue
		}
		r := AgentRole{}
		if d := v.get("description"); d != nil {
			r.Description = d.text
		}
		if f := v.get("config_file"); f != nil {
			b.role(&r, f)
		}
		a.Roles[name] = r
	}
}

// role reads the configuration of a role: model, effort and instructions count;
// nothing in it can give an agent more than its parent has.
func (b *builder) role(r *AgentRole, f *node) {
	r.ConfigFile = b.resolve(f.text, f.layer)
	before := len(b.errs)
	l := b.readLayer("role", r.ConfigFile, KindUsage)
	if l == nil {
		if len(b.errs) == before {
			b.wrong(f, "agents", fmt.Sprintf("role file %s does not exist", r.ConfigFile), "")
		}
		return
	}
	found := check(l.root.without("name").without("description").without("nickname_candidates"), configSchema())
	for _, p := range found.wrong {
		b.fail(p.err(KindUsage))
	}
	for _, p := range found.unknown {
		b.notice(Notice{Class: "unknown_key", Message: place(p.at) + p.message + "; it is ignored", Origin: p.at.origin(), Hint: p.hint})
	}
	get := func(key string) string {
		if v := l.root.get(key); v != nil && v.kind == kString {
			return v.text
		}
		return ""
	}
	r.Model, r.Effort, r.Instructions = get("model"), get("model_reasoning_effort"), get("developer_instructions")
	if r.Description == "" {
		r.Description = get("description")
	}
	var idle []string
	for _, s := range found.found {
		if s.key.path != "model" && s.key.path != "model_reasoning_effort" && s.key.path != "developer_instructions" {
			idle = append(idle, s.path[0])
		}
	}
	if len(idle) > 0 {
		b.notice(Notice{Class: "unused_key", Origin: r.ConfigFile,
			Message: fmt.Sprintf("%s: without effect in a role file: %s", r.ConfigFile, strings.Join(unique(idle), ", ")),
			Hint:    "a role has the rights of its parent"})
	}
}

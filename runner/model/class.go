package model

// Class is one row of the table of error classes: the stable words that stand
// in events, reports and APIError.Class.
type Class struct {
	Name string
	// Retryable tells whether the same run may succeed later without anybody
	// changing anything. It does not tell whether this client retried.
	Retryable bool
	Meaning   string
	Hint      string
}

// The words.
const (
	ClassBadRequest    = "bad_request"
	ClassUnauthorized  = "unauthorized"
	ClassForbidden     = "forbidden"
	ClassNotFound      = "not_found"
	ClassRejected      = "rejected"
	ClassTooLarge      = "too_large"
	ClassQuota         = "quota"
	ClassUsageLimit    = "usage_limit"
	ClassRateLimit     = "rate_limit"
	ClassOverloaded    = "overloaded"
	ClassServerError   = "server_error"
	ClassContextLength = "context_length"
	ClassInvalidModel  = "invalid_model"
	ClassInvalidPrompt = "invalid_prompt"
	ClassNetwork       = "network"
	ClassTLS           = "tls"
	ClassRedirect      = "redirect"
	ClassStreamEnded   = "stream_ended"
	ClassIdleTimeout   = "idle_timeout"
	ClassOversized     = "oversized"
	ClassBadResponse   = "bad_response"
	ClassIncomplete    = "incomplete"
	ClassContentFilter = "content_filter"
	ClassScript        = "script"
)

var classes = [...]Class{
	{ClassBadRequest, false, "400: the service refuses the request as it is",
		"the service's answer names the part it refuses; check model, provider and tool settings"},
	{ClassUnauthorized, false, "401: the credential was refused",
		"check the key or login; `nightshift auth status` shows which one is used"},
	{ClassForbidden, false, "403: the credential may not do this",
		"the credential is known but lacks the right: check project, organisation, region and the model's access list"},
	{ClassNotFound, false, "404: the endpoint does not exist",
		"check base_url: requests go to {base_url}/responses"},
	{ClassRejected, false, "another 4xx: the service rejects the request",
		"the service's answer says why; the same request will be rejected again"},
	{ClassTooLarge, false, "413, or larger by itself than a minute's tokens: the request is too large for the service",
		"start a new thread, or lower model_auto_compact_token_limit so that the history is compacted earlier"},
	{ClassQuota, false, "402 or insufficient_quota: nothing is left to pay with",
		"check plan and billing of the account the key belongs to"},
	{ClassUsageLimit, true, "the account's usage limit is reached",
		"wait until the limit resets, or use another account or an API key"},
	{ClassRateLimit, true, "429: too many requests or tokens per minute",
		"run fewer jobs at once, or start this one later"},
	{ClassOverloaded, true, "the model is at capacity",
		"try later, or name other models in model_fallback"},
	{ClassServerError, true, "5xx or response.failed: the service failed",
		"try later; the service's status page may tell more"},
	{ClassContextLength, false, "the history does not fit into the model's context window",
		"start a new thread, or lower model_auto_compact_token_limit so that the history is compacted earlier"},
	{ClassInvalidModel, false, "the model does not exist or is not open to this credential",
		"check `model` in the configuration or the -m flag"},
	{ClassInvalidPrompt, false, "the service refuses the prompt",
		"the prompt or the material in it breaks the service's rules; change it"},
	{ClassNetwork, true, "the service could not be reached",
		"check base_url, DNS, firewall and proxy of this machine"},
	{ClassTLS, false, "the service's certificate was not accepted",
		"check base_url; behind an inspecting proxy, add its certificate authority to the system's store or name it in SSL_CERT_FILE or CODEX_CA_CERTIFICATE"},
	{ClassRedirect, false, "the service answered with a redirect, which is never followed",
		"set base_url to the address that the redirect names, if you trust it"},
	{ClassStreamEnded, true, "the response stream ended before its final event",
		"a proxy or the network cuts long responses; try later"},
	{ClassIdleTimeout, true, "nothing came from the service for too long",
		"try later, or raise stream_idle_timeout_ms of the provider"},
	{ClassOversized, false, "the response is larger than a response of a model can be",
		"check base_url: this is not how a model service answers"},
	{ClassBadResponse, true, "the answer is not an event stream",
		"check base_url: something else than a model service answers there, such as a login page or a proxy"},
	{ClassIncomplete, false, "the response stopped at its token limit",
		"raise the model's output limit or ask for less in one answer"},
	{ClassContentFilter, false, "the service's content filter stopped the response",
		"change the prompt or the material in it"},
	{ClassScript, false, "the scripted session has no fitting reply",
		"the run asked for what the script does not answer: record it again, or add a reply"},
}

// lookup returns the row of name; an unknown word has no hint.
func lookup(name string) Class {
	for _, c := range classes {
		if c.Name == name {
			return c
		}
	}
	return Class{Name: name}
}

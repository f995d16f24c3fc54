package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"time"

	"github.com/nightshift-ci/nightshift/runner"
	"github.com/nightshift-ci/nightshift/runner/auth"
	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/model"
)

// openModel makes what answers the requests: a script, or a client with its
// credential, each recorded if asked.
func (s *session) openModel(key string) (model.Streamer, error) {
	var streamer model.Streamer
	if s.flags.ModelScript != "" {
		data, err := s.rt.readInput(s.rt.abs(s.flags.ModelScript), maxScript)
		if err != nil {
			return nil, usageError("--model-script: %v", err)
		}
		p := s.policy.Config().Provider
		script, err := model.NewScript(s.flags.ModelScript, data, model.ScriptOptions{Emit: s.log.Emit, RequestMaxRetries: &p.RequestMaxRetries, StreamMaxRetries: &p.StreamMaxRetries,
			IdleTimeout: p.StreamIdleTimeout, RetryBudget: p.RetryBudget})
		if err != nil {
			return nil, exitError{code: runner.ExitUsage, err: err}
		}
		streamer = script
	} else if s.job.answer == nil {
		client, err := s.openClient(key)
		if err != nil {
			return nil, err
		}
		streamer = client
	}
	if s.job.answer != nil {
		streamer = s.job.answer
	}
	if gate := s.job.task.gate; gate != nil {
		streamer = gate(streamer)
	}
	if s.flags.Record == "" {
		return streamer, nil
	}
	f, err := os.OpenFile(s.rt.abs(s.flags.Record), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, usageError("--record: %v", err)
	}
	rec := model.NewRecorder(streamer, f, s.mask)
	s.sinks.onFinish(func() error { return errors.Join(rec.Err(), f.Close()) })
	return rec, nil
}

// openClient loads the credential and makes the client.
func (s *session) openClient(key string) (model.Streamer, error) {
	cfg := s.policy.Config()
	cred, err := auth.Load(s.rt.ctx, s.authSources(key))
	if err != nil {
		return nil, err
	}
	s.cred = cred
	for _, secret := range cred.Secrets() {
		s.mask.Add(secret, "credential")
	}
	s.notices = append(s.notices, cred.Notices()...)
	s.notices = append(s.notices, s.rt.authorityNotices()...)
	p := cfg.Provider
	base := p.BaseURL
	if b := cred.BaseURL(); b != "" {
		base = b
	}
	headers := http.Header{}
	for k, v := range p.HTTPHeaders {
		headers.Set(k, v)
	}
	for k, name := range p.EnvHTTPHeaders {
		if v := s.rt.getenv(name); v != "" {
			headers.Set(k, v)
			s.mask.Add(v, name)
		}
	}
	if cfg.Residency != "" {
		headers.Set("x-openai-internal-codex-residency", cfg.Residency)
	}
	client, err := model.NewClient(model.Options{
		BaseURL: base, Headers: headers, Query: p.QueryParams, Auth: cred, Originator: s.rt.originator(),
		UserAgent: s.rt.userAgent(), RequestMaxRetries: &p.RequestMaxRetries, StreamMaxRetries: &p.StreamMaxRetries,
		IdleTimeout: p.StreamIdleTimeout, RetryBudget: p.RetryBudget, Proxy: s.rt.proxy(), Emit: s.log.Emit,
	})
	var mistake *model.BaseURLError
	if errors.As(err, &mistake) {
		return nil, exitError{code: runner.ExitUsage, err: mistake}
	}
	if err != nil {
		return nil, err
	}
	return client, nil
}

func (s *session) authSources(key string) auth.Sources {
	cfg := s.policy.Config()
	p := cfg.Provider
	src := auth.Sources{
		Home: s.home, LookupEnv: s.rt.lookupEnv, APIKeyStdin: key,
		Provider: auth.Provider{Name: cfg.ModelProvider, BaseURL: p.BaseURL, EnvKey: p.EnvKey, EnvKeyInstructions: p.EnvKeyInstructions,
			BearerToken: p.BearerToken, RequiresOpenAIAuth: p.RequiresOpenAIAuth, BuiltIn: p.BuiltIn},
		ForcedLoginMethod: cfg.Auth.ForcedLoginMethod, ForcedWorkspaces: cfg.Auth.ForcedWorkspaces,
		AllowedMethods: cfg.Auth.AllowedMethods, AllowedWorkspaces: cfg.Auth.AllowedWorkspaces,
		ReadOnlyOK: cfg.Auth.ReadOnlyOK, RescueDir: os.TempDir(), RefreshURL: s.rt.getenv("CODEX_REFRESH_TOKEN_URL_OVERRIDE"),
		ChatGPTBaseURL: cfg.Auth.BaseURL, Emit: s.log.Emit,
		HTTP: &http.Client{Transport: &http.Transport{Proxy: s.rt.proxy()}},
		Mask: func(secret string) { s.mask.Add(secret, "credential") },
	}
	if cmd := cfg.Auth.Writeback; cmd != "" {
		src.Writeback = func(ctx context.Context, bundle []byte) error {
			return runner.Writeback(ctx, cmd, s.workdir, s.rt.environ, bundle)
		}
	}
	return src
}

func (s *session) credential() event.CredentialSelected {
	if s.cred == nil {
		return event.CredentialSelected{Source: "model script", Mode: "none"}
	}
	return s.cred.Summary()
}

// Bounds of the last write-back of a login: usually, and after a signal.
const (
	writebackClose = 60 * time.Second
	signalClose    = 3 * time.Second
)

// closeCredential makes the last write-back of a refreshed login. Only a signal
// makes it hurry: after a lost login somebody has to log in by hand.
func (s *session) closeCredential() error {
	if s.cred == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), writebackClose)
	defer cancel()
	defer context.AfterFunc(s.rt.ctx, func() { time.AfterFunc(signalClose, cancel) })()
	return s.cred.Close(ctx)
}

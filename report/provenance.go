package report

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// in-toto Statement v1 with SLSA provenance v1, in a DSSE envelope.
type statement struct {
	Type          string         `json:"_type"`
	Subject       []resourceDesc `json:"subject"`
	PredicateType string         `json:"predicateType"`
	Predicate     provenance     `json:"predicate"`
}

type resourceDesc struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest,omitempty"`
}

type provenance struct {
	Definition buildDefinition `json:"buildDefinition"`
	Details    runDetails      `json:"runDetails"`
}

type buildDefinition struct {
	BuildType    string         `json:"buildType"`
	External     map[string]any `json:"externalParameters"`
	Internal     map[string]any `json:"internalParameters"`
	Dependencies []resourceDesc `json:"resolvedDependencies,omitempty"`
}

type runDetails struct {
	Builder    builder        `json:"builder"`
	Metadata   runMetadata    `json:"metadata"`
	Byproducts []resourceDesc `json:"byproducts,omitempty"`
}

type builder struct {
	ID      string            `json:"id"`
	Version map[string]string `json:"version,omitempty"`
}

type runMetadata struct {
	InvocationID string `json:"invocationId,omitempty"`
	StartedOn    string `json:"startedOn,omitempty"`
	FinishedOn   string `json:"finishedOn,omitempty"`
}

type envelope struct {
	PayloadType string      `json:"payloadType"`
	Payload     string      `json:"payload"`
	Signatures  []signature `json:"signatures"`
}

type signature struct {
	KeyID string `json:"keyid,omitempty"`
	Sig   string `json:"sig"`
}

const (
	payloadType = "application/vnd.in-toto+json"
	buildType   = homepage + "/run/v1"
)

// renderProvenance states how the patch came to be: who asked, which model,
// under which policy and sandbox, from which commit. The subject is the patch;
// the prompt enters by its digest, since it may be confidential.
func renderProvenance(w io.Writer, s *Summary, o *Options) error {
	if err := patchKnown(s); err != nil {
		return err
	}
	payload, err := json.Marshal(statementOf(s))
	if err != nil {
		return err
	}
	env := envelope{PayloadType: payloadType, Payload: base64.StdEncoding.EncodeToString(payload), Signatures: []signature{}}
	if o.Sign != nil {
		sig, err := sign(o.Sign.Key, payload)
		if err != nil {
			return err
		}
		env.Signatures = append(env.Signatures, signature{o.Sign.KeyID, base64.StdEncoding.EncodeToString(sig)})
	}
	return indentJSON(w, env)
}

func statementOf(s *Summary) statement {
	st := statement{Type: "https://in-toto.io/Statement/v1", PredicateType: "https://slsa.dev/provenance/v1",
		Subject: []resourceDesc{{Name: "changes.patch", Digest: map[string]string{"sha256": sha256Hex(s.patch)}}}}
	def := &st.Predicate.Definition
	def.BuildType = buildType
	def.External = map[string]any{"mode": s.Run.Mode, "model": s.Run.Model, "provider": s.Run.Provider,
		"promptSHA256": cmp.Or(s.Run.PromptSHA, sha256Hex(s.Run.Prompt)), "requester": s.Run.Requester}
	def.Internal = map[string]any{"threadId": s.Run.ThreadID, "policyDigest": s.Policy.Digest, "sandboxMode": s.Run.Sandbox,
		"approvalPolicy": s.Run.Approval, "network": s.Run.Network, "outcome": s.Outcome, "class": s.Class, "exitCode": s.ExitCode,
		"denials": s.Totals.Denials, "guarantees": guarantees(s)}
	if s.Git != nil {
		dep := resourceDesc{Name: "base", URI: gitURI(s.Git.Remote)}
		if base := strings.ToLower(cmp.Or(s.Changes.Base, s.Git.Commit)); isHex(base) {
			dep.Digest = map[string]string{"gitCommit": base}
		}
		if dep.Digest != nil || dep.URI != "" {
			def.Dependencies = append(def.Dependencies, dep)
		}
	}
	run := &st.Predicate.Details
	run.Builder = builder{ID: cmp.Or(s.Run.Job, homepage), Version: map[string]string{"nightshift": s.Run.Version}}
	run.Metadata = runMetadata{InvocationID: s.Run.ThreadID, StartedOn: stamp(s.StartedAt), FinishedOn: stamp(s.EndedAt)}
	if isHex(s.Changes.Head) {
		run.Byproducts = append(run.Byproducts, resourceDesc{Name: "head", Digest: map[string]string{"gitTree": s.Changes.Head}})
	}
	return st
}

func guarantees(s *Summary) []string {
	out := []string{}
	if s.Sandbox != nil {
		for _, g := range s.Sandbox.Guarantees {
			if g.Held {
				out = append(out, g.Name)
			}
		}
	}
	return out
}

func gitURI(remote string) string {
	if remote == "" || strings.ContainsAny(remote, " \n\r\t") {
		return ""
	}
	if strings.Contains(remote, "://") {
		return "git+" + remote
	}
	return ""
}

func isHex(s string) bool {
	_, err := hex.DecodeString(s)
	return err == nil && len(s) >= 40
}

func sha256Hex(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// sign makes a DSSE signature over the pre-authentication encoding. ECDSA is
// used without a random source, which Go makes deterministic (RFC 6979).
func sign(key crypto.Signer, payload []byte) ([]byte, error) {
	var pae bytes.Buffer
	fmt.Fprintf(&pae, "DSSEv1 %d %s %d ", len(payloadType), payloadType, len(payload))
	pae.Write(payload)
	switch k := key.(type) {
	case ed25519.PrivateKey:
		return ed25519.Sign(k, pae.Bytes()), nil
	case *ecdsa.PrivateKey:
		hash := crypto.SHA256
		switch bits := k.Curve.Params().BitSize; {
		case bits > 384:
			hash = crypto.SHA512
		case bits > 256:
			hash = crypto.SHA384
		}
		h := hash.New()
		h.Write(pae.Bytes())
		return k.Sign(nil, h.Sum(nil), hash)
	}
	return nil, fmt.Errorf("sign the provenance: keys are ed25519 or ecdsa, not %T", key)
}

package report

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nightshift-ci/nightshift/runner/event"
)

func testSigner(testing.TB) *Signer {
	return &Signer{Key: ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, 32)), KeyID: "test"}
}

// The envelope verifies with the public key, over exactly the bytes that DSSE
// says, and the statement names the patch by its digest.
func TestProvenanceVerifies(t *testing.T) {
	s := scenarios()[0].summary(t)
	ec, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), bytes.Repeat([]byte{9}, 32))
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []crypto.Signer{testSigner(t).Key, ec} {
		var b, again bytes.Buffer
		o := &Options{Sign: &Signer{Key: key, KeyID: "k1"}}
		for _, w := range []*bytes.Buffer{&b, &again} {
			if err := Render(w, "provenance", []*Summary{s}, o); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(b.Bytes(), again.Bytes()) {
			t.Errorf("%T: two signatures of one run differ", key)
		}
		var env envelope
		if err := json.Unmarshal(b.Bytes(), &env); err != nil {
			t.Fatal(err)
		}
		payload, err := base64.StdEncoding.DecodeString(env.Payload)
		if err != nil || len(env.Signatures) != 1 || env.Signatures[0].KeyID != "k1" {
			t.Fatalf("%+v %v", env, err)
		}
		sig, err := base64.StdEncoding.DecodeString(env.Signatures[0].Sig)
		if err != nil {
			t.Fatal(err)
		}
		pae := fmt.Appendf(nil, "DSSEv1 28 application/vnd.in-toto+json %d %s", len(payload), payload)
		switch pub := key.Public().(type) {
		case ed25519.PublicKey:
			if !ed25519.Verify(pub, pae, sig) {
				t.Error("the ed25519 signature does not verify")
			}
		case *ecdsa.PublicKey:
			sum := sha256.Sum256(pae)
			if !ecdsa.VerifyASN1(pub, sum[:], sig) {
				t.Error("the ECDSA signature does not verify")
			}
		}
		var st statement
		if err := json.Unmarshal(payload, &st); err != nil {
			t.Fatal(err)
		}
		if got := "sha256:" + st.Subject[0].Digest["sha256"]; got != goldenDigest {
			t.Errorf("subject %s, want %s", got, goldenDigest)
		}
		if st.Predicate.Definition.Dependencies[0].Digest["gitCommit"] != baseCommit {
			t.Errorf("dependencies %+v", st.Predicate.Definition.Dependencies)
		}
		if strings.Contains(string(payload), "Make the tests pass") {
			t.Error("the prompt is in the provenance")
		}
	}
}

func TestProvenanceUnsigned(t *testing.T) {
	var b bytes.Buffer
	if err := Render(&b, "provenance", []*Summary{scenarios()[0].summary(t)}, nil); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), `"signatures": []`) {
		t.Errorf("an unsigned envelope must say so: %s", b.String())
	}
}

// The digest is that of the prompt that was given, not of what reports show.
func TestProvenanceOfALongPrompt(t *testing.T) {
	prompt := strings.Repeat("make the tests pass\n", maxPrompt/10)
	f := NewFold()
	f.Add(event.Record{Seq: 1, Event: event.RunStarted{Prompt: prompt}})
	f.Add(event.Record{Seq: 2, Event: event.RunCompleted{Outcome: "success"}})
	sum := sha256.Sum256([]byte(prompt))
	s := f.Summary()
	if got := statementOf(s).Predicate.Definition.External["promptSHA256"]; got != hex.EncodeToString(sum[:]) {
		t.Errorf("promptSHA256 %v, want %x", got, sum)
	}
	if len(s.Run.Prompt) >= len(prompt) {
		t.Error("the prompt is not cut, so this shows nothing")
	}
}

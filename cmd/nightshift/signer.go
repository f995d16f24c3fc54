package main

import (
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	"github.com/nightshift-ci/nightshift/report"
)

// readSigner reads an unencrypted PEM private key.
func readSigner(rt *runtime, path string) (*report.Signer, error) {
	data, err := rt.readInput(path, maxConfig)
	if err != nil {
		return nil, errText(err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errors.New("not a PEM file")
	}
	var key any
	switch block.Type {
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	default:
		return nil, fmt.Errorf("%q is not a private key that is supported; use PKCS#8 with ed25519 or ECDSA", strings.ToLower(block.Type))
	}
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a key of type %T cannot sign", key)
	}
	public, err := x509.MarshalPKIXPublicKey(signer.Public())
	if err != nil {
		return nil, err
	}
	id := sha256.Sum256(public)
	return &report.Signer{Key: signer, KeyID: "sha256:" + hex.EncodeToString(id[:])}, nil
}

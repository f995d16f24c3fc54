package egress

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"testing"
)

// clientHello is what crypto/tls says first.
func clientHello(f *testing.F, name string) []byte {
	f.Helper()
	ours, theirs := net.Pipe()
	go func() {
		_ = tls.Client(theirs, &tls.Config{ServerName: name, InsecureSkipVerify: name == ""}).Handshake()
	}()
	head := make([]byte, 5)
	if _, err := io.ReadFull(ours, head); err != nil {
		f.Fatal(err)
	}
	body := make([]byte, int(head[3])<<8|int(head[4]))
	if _, err := io.ReadFull(ours, body); err != nil {
		f.Fatal(err)
	}
	_ = ours.Close()
	_ = theirs.Close()
	return append(head, body...)
}

// FuzzHello: what was read of a ClientHello is passed on unchanged.
func FuzzHello(f *testing.F) {
	f.Add(clientHello(f, "example.com"))
	f.Add(clientHello(f, ""))
	f.Add([]byte("GET / HTTP/1.1\r\n"))
	f.Add([]byte{22, 3, 1, 0, 0})
	f.Add([]byte{22, 3, 1, 255, 255, 1, 0, 0, 1})
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, sent []byte) {
		name, read, err := readHello(bytes.NewReader(sent))
		if !bytes.HasPrefix(sent, read) {
			t.Errorf("%x was read of %x", read, sent)
		}
		if err != nil && name != "" {
			t.Errorf("name %q with %v", name, err)
		}
	})
}

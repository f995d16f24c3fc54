package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nightshift-ci/nightshift/sandbox"
)

// client runs inside the sandbox, as a Go program would: it takes the proxy from
// its variables. Arguments: the proxy's URL, the certificate file, URLs.
func client(args []string, _ io.Reader, stdout, _ io.Writer) int {
	pem, err := os.ReadFile(args[1])
	if err != nil {
		fmt.Fprintln(stdout, err)
		return 1
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	proxy, err := url.Parse(args[0])
	if err != nil {
		fmt.Fprintln(stdout, err)
		return 1
	}
	c := &http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{Proxy: http.ProxyURL(proxy), TLSClientConfig: &tls.Config{RootCAs: pool}}}
	for _, u := range args[2:] {
		resp, err := c.Get(u)
		if err != nil {
			fmt.Fprintf(stdout, "%s: %v\n", u, err)
			continue
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		fmt.Fprintf(stdout, "%s: %d %s\n", u, resp.StatusCode, strings.TrimSpace(string(body)))
	}
	return 0
}

// Everything together: a command in a sandbox whose only way out is the proxy,
// with real clients, real servers and names that lie.
func TestThroughSandbox(t *testing.T) {
	inside(t, func(t *testing.T) {
		// Not below /tmp, which commands see replaced.
		home, err := os.UserHomeDir()
		if err != nil {
			t.Skip(err)
		}
		ws, err := os.MkdirTemp(home, ".egress-test-")
		if err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() { os.RemoveAll(ws) })
		ca := internet(t, ws)

		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
		defer cancel()
		box, err := sandbox.Open(ctx, sandbox.Spec{Mode: sandbox.WorkspaceWrite, Workspace: ws, Net: sandbox.Net{Mode: sandbox.NetProxy},
			Require: sandbox.NetConfined | sandbox.WritesConfined | sandbox.TreeDies})
		var missing *sandbox.UnsupportedError
		if errors.As(err, &missing) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := box.Close(); err != nil {
				t.Error(err)
			}
		})
		allow := []string{"public.test", "meta.test", "local.test", "rebind.test", "public.test:22"}
		w := newWorldOn(t, box.ProxyListener(), Options{Resolver: newDNS(t, zone()).resolver()}, allow...)

		run := func(c sandbox.Command) string {
			c.Dir, c.Env = ws, append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + ws, "CA=" + ca, "PROXY=" + box.ProxyAddr()}, ProxyEnv(box.ProxyAddr())...)
			p, err := box.Start(ctx, c)
			if err != nil {
				t.Fatal(err)
			}
			b, _ := io.ReadAll(p.Output())
			if _, err := p.Wait(); err != nil {
				t.Error(err)
			}
			return string(b)
		}
		out := run(sandbox.Command{Helper: "client", Argv: []string{"http://" + box.ProxyAddr(), ca,
			"https://public.test/", "http://public.test/", "https://evil.test/", "http://evil.test/", "http://meta.test/", "https://local.test/",
			"http://rebind.test/", "http://rebind.test/", "https://198.51.100.10/", "http://169.254.169.254/"}})
		for _, want := range []string{
			"https://public.test/: 200 secure GET public.test", "http://public.test/: 200 public GET public.test",
			"https://evil.test/: Get \"https://evil.test/\": nightshift egress: evil.test:443 refused: it is not in the list of allowed hosts",
			"http://evil.test/: 403 nightshift egress: evil.test:80 refused: it is not in the list of allowed hosts",
			"http://meta.test/: 403 nightshift egress: meta.test:80 refused: it resolves to 169.254.169.254, a link-local address",
			"local.test:443 refused: it resolves to 127.0.0.1, a loopback address",
			"http://rebind.test/: 200 public GET rebind.test", "rebind.test:80 refused: it resolves to 127.0.0.1",
			"198.51.100.10:443 refused: it is an address", "http://169.254.169.254/: 403",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in\n%s", want, out)
			}
		}
		if strings.Contains(out, "METADATA") || strings.Contains(out, "LOOPBACK") {
			t.Errorf("%s", out)
		}
		if n := len(w.outcomes(10)); n != 10 {
			t.Errorf("%d outcomes", n)
		}

		if _, err := exec.LookPath("curl"); err == nil {
			script := `
curl -sS -m 10 --cacert $CA https://public.test/
curl -sS -m 10 --cacert $CA -x socks5h://$PROXY https://public.test/
curl -sS -m 10 --cacert $CA -x socks5h://$PROXY https://evil.test/ 2>&1
curl -sS -m 10 --cacert $CA --connect-to evil.test:443:public.test:443 https://evil.test/ 2>&1
echo "direct:"
curl -sS -m 5 --noproxy '*' http://198.51.100.10/ 2>&1
curl -sS -m 5 --noproxy '*' http://169.254.169.254/ 2>&1
curl -sS -m 5 --noproxy '*' http://127.0.0.1/ 2>&1
curl -sS -m 5 --noproxy '*' --resolve public.test:80:198.51.100.10 http://public.test/ 2>&1
true`
			out := run(sandbox.Command{Argv: []string{"/bin/sh", "-c", script}})
			through, direct, ok := strings.Cut(out, "direct:\n")
			if !ok || strings.Count(through, "secure GET public.test\n") != 2 || !strings.Contains(through, "(2)") || !strings.Contains(through, "unrecognized name") {
				t.Errorf("%s", through)
			}
			if strings.Contains(direct, "GET") || strings.Count(direct, "curl:") != 4 {
				t.Errorf("%s", direct)
			}
		}
		// A server of the command's own on its loopback is not in the proxy's way.
		if _, err := exec.LookPath("python3"); err == nil {
			out := run(sandbox.Command{Argv: []string{"python3", "-c", `
import http.server, threading, urllib.request
s = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=s.serve_forever, daemon=True).start()
print(urllib.request.urlopen("http://localhost:%d/ca.pem" % s.server_port).status)
try: urllib.request.urlopen("https://evil.test/")
except Exception as e: print(e)`}})
			if !strings.Contains(out, "200\n") || !strings.Contains(out, "nightshift egress: evil.test:443 refused") {
				t.Errorf("%s", out)
			}
		}
	})
}

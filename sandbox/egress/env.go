package egress

// ProxyEnv returns the variables that send the clients in a sandbox to the
// proxy at addr ("127.0.0.1:8080", as they see it). Only their own loopback is
// excepted: a private network in NO_PROXY would be a hole if there were a way.
//
// ALL_PROXY names the HTTP side. The SOCKS side has the same address, but
// clients that lack a SOCKS module fail as a whole when they find a SOCKS URL
// there, whatever the other variables say (Python's httpx does).
func ProxyEnv(addr string) []string {
	url := "http://" + addr
	const local = "localhost,127.0.0.1,::1"
	return []string{
		"HTTP_PROXY=" + url, "HTTPS_PROXY=" + url, "ALL_PROXY=" + url, "NO_PROXY=" + local,
		"http_proxy=" + url, "https_proxy=" + url, "all_proxy=" + url, "no_proxy=" + local,
		"NODE_USE_ENV_PROXY=1", // node's own fetch and http look at the others only with it
	}
}

package runner

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"
)

func TestGitCredentials(t *testing.T) {
	p := newPlace(t)
	p.git(p.ws, "init", "-q")
	token := "x-access-token:ghs_0123456789abcdef"
	header := base64.StdEncoding.EncodeToString([]byte(token))
	p.git(p.ws, "config", "http.https://example.com/.extraheader", "AUTHORIZATION: basic "+header)
	p.git(p.ws, "remote", "add", "up", "https://bot:url-password@example.com/r.git")
	p.git(p.ws, "remote", "add", "plain", "https://example.com/user@host:x/r.git")
	c, _ := p.confine("workspace-write")
	if got := c.Secrets["git-config"]; !slices.Equal(got, []string{header, "ghs_0123456789abcdef", "url-password"}) {
		t.Errorf("%q", got)
	}
	// Where newer checkout steps and submodules have it.
	p.git(p.ws, "config", "--unset-all", "http.https://example.com/.extraheader")
	p.write("temp/git-credentials-1.config", "[http \"https://example.com/\"]\n\textraheader = AUTHORIZATION: bearer included-0123456789\n[include]\n\tpath = more.config\n")
	p.write("temp/more.config", "[http]\n\textraheader = X: more-0123456789\n[include]\npath = git-credentials-1.config\n")
	p.git(p.ws, "config", "includeIf.gitdir:"+p.ws+"/.git.path", p.base+"/temp/git-credentials-1.config")
	p.write(p.ws+"/.git/modules/sub/config", "[remote \"o\"]\n\turl = https://a:module-password@example.com/s.git\n")
	c, _ = p.confine("workspace-write")
	if got := c.Secrets["git-config"]; !slices.Equal(got, []string{"url-password", "module-password", "included-0123456789", "more-0123456789"}) {
		t.Errorf("%q", got)
	}
	if len(c.Notices) != 1 || c.Notices[0].Class != "git_credentials" || strings.Contains(c.Notices[0].Message, "ghs_") {
		t.Errorf("%+v", c.Notices)
	}
}

// Credentials of git in all the places and forms that CI set-ups leave them in.
func TestGitCredentialForms(t *testing.T) {
	p := newPlace(t)
	p.git(p.ws, "init", "-q")
	p.git(p.ws, "remote", "add", "a", "https://ghs_aaaa1111bbbb2222@example.com/r.git")
	p.git(p.ws, "remote", "add", "b", "https://cccc3333dddd4444:x-oauth-basic@example.com/r.git")
	p.git(p.ws, "remote", "add", "c", "https://first.last-name-2%40example.com@example.com/r.git")
	p.git(p.ws, "remote", "add", "d", "https://bot:p%40ss-word-5@example.com/r.git")
	p.write(p.user+"/.gitconfig", "[url \"https://oauth2:user-token-6666@example.com/\"]\n\tinsteadOf = https://example.com/\n"+
		"[credential]\n\thelper = \"!f() { echo username=x; echo \\\"password=helper-7777\\\"; }; f\"\n\thelper = !f() { echo password=$TOKEN; }\n"+
		"[http] extraheader = AUTHORIZATION: bearer same-line-8888\n[http]\n\tproxy = http://me:proxy-9999@proxy.example:3128\n"+
		strings.Repeat("x", 100_000)+"\n[remote \"z\"]\n\turl = https://bot:after-\\\nlong-line@example.com/z.git\n")
	c, _ := p.confine("workspace-write")
	want := []string{"ghs_aaaa1111bbbb2222", "cccc3333dddd4444", "p%40ss-word-5", "p@ss-word-5", "user-token-6666", "helper-7777", "same-line-8888", "proxy-9999", "after-long-line"}
	if got := c.Secrets["git-config"]; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

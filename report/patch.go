package report

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"slices"
	"strings"
	"time"
)

// ErrNoDiff tells that the changes of the run could not be captured, so that no
// patch can be written: an empty one would say that nothing was changed.
var ErrNoDiff = errors.New("the changes of the run were not captured")

// renderPatch writes the unified diff as it was captured, for `git apply`. A
// run that changed nothing, or ended before it could, gives an empty file.
func renderPatch(w io.Writer, s *Summary, _ *Options) error {
	if err := patchKnown(s); err != nil {
		return err
	}
	_, err := io.WriteString(w, s.patch)
	return err
}

func patchKnown(s *Summary) error {
	switch {
	case s.Changes.Error != "":
		return fmt.Errorf("%w: %s", ErrNoDiff, PlainLine(s.Changes.Error, 1000))
	case !s.Complete && !s.Changes.Captured:
		return fmt.Errorf("%w: the log ends before they were", ErrNoDiff)
	case s.patch == "" && s.Changes.Bytes > 0:
		return fmt.Errorf("report.json does not hold the patch; give the run's events.jsonl instead")
	}
	return nil
}

// renderMail writes the diff as a mail for `git am`: a commit with an author, a
// date and a message. A run that changed nothing gives an empty file.
func renderMail(w io.Writer, s *Summary, _ *Options) error {
	if err := patchKnown(s); err != nil || s.patch == "" {
		return err
	}
	name, addr, subject := mailDetails(s)
	when := s.StartedAt
	if when.IsZero() {
		when = time.Unix(0, 0)
	}
	from := s.Changes.Base
	if len(from) != 40 || harmless(from) != from {
		from = strings.Repeat("0", 40)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "From %s Mon Sep 17 00:00:00 2001\n", from) // the fixed date is git's mark of a mail patch
	fmt.Fprintf(&b, "From: %s <%s>\n", mimeWord(name), addr)
	fmt.Fprintf(&b, "Date: %s\n", when.UTC().Format("Mon, 2 Jan 2006 15:04:05 -0700"))
	fmt.Fprintf(&b, "Subject: [PATCH] %s\n", mimeWord(subject))
	b.WriteString("MIME-Version: 1.0\nContent-Type: text/plain; charset=UTF-8\n")
	body := fmt.Sprintf("%s---\n\n%s-- \nnightshift %s\n\n", mailBody(s), s.patch, PlainLine(s.Run.Version, 60))
	if strings.Contains(s.patch, "\r") { // git am drops carriage returns of a plain body
		b.WriteString("Content-Transfer-Encoding: base64\n\n")
		for chunk := range slices.Chunk([]byte(body), 57) {
			b.WriteString(base64.StdEncoding.EncodeToString(chunk) + "\n")
		}
		b.WriteByte('\n')
	} else {
		b.WriteString("Content-Transfer-Encoding: 8bit\n\n" + body)
	}
	_, err := w.Write(b.Bytes())
	return err
}

func mailDetails(s *Summary) (name, addr, subject string) {
	name, addr, subject = "nightshift", "nightshift@localhost", "nightshift: changes of the run"
	if s.mail == nil {
		return name, addr, subject
	}
	// "Name <address>", as git has it; the grammar of mail headers is not needed.
	if n, rest, ok := strings.Cut(s.mail.Author, "<"); ok {
		if a, _, ok := strings.Cut(rest, ">"); ok && strings.TrimSpace(a) != "" {
			name, addr = cmp.Or(strings.TrimSpace(n), name), strings.TrimSpace(a)
		}
	}
	if line := PlainLine(s.mail.Subject, 200); line != "" {
		subject = line
	}
	return PlainLine(name, 200), harmless(strings.ReplaceAll(addr, " ", "")), subject
}

// mailBody becomes the commit message: facts of the run as trailers, no text of
// the model, in which a line "---" or "diff" would cut the message short.
func mailBody(s *Summary) string {
	var b strings.Builder
	for _, kv := range [][2]string{{"Nightshift-Thread", s.Run.ThreadID}, {"Nightshift-Model", s.Run.Model},
		{"Nightshift-Policy", s.Policy.Digest}, {"Nightshift-Outcome", s.Outcome}} {
		if v := harmless(kv[1]); v != "" {
			fmt.Fprintf(&b, "%s: %s\n", kv[0], v)
		}
	}
	return b.String()
}

func mimeWord(s string) string { return mime.QEncoding.Encode("utf-8", s) }

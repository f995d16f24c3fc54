package report

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// Create opens the file that a report is written to. Close makes the finished
// file appear at path, replacing what was there in one step; until then an
// older file stays as it was. A returned writer that is also an [Aborter] is
// aborted instead of closed when its report could not be made.
type Create func(path string) (io.WriteCloser, error)

// Aborter drops what was written so far and leaves the old file alone.
type Aborter interface{ Abort() error }

// Output is one requested report.
type Output struct {
	Format string // name of a [Format]
	Path   string
}

// ParseOutput reads FORMAT=PATH.
func ParseOutput(arg string) (Output, error) {
	name, path, ok := strings.Cut(arg, "=")
	if !ok || path == "" {
		return Output{}, &OutputError{Arg: arg, Why: "write it as FORMAT=PATH"}
	}
	if _, ok := formatNamed(name); !ok {
		return Output{}, &OutputError{Arg: arg, Why: fmt.Sprintf("there is no report format %q", name)}
	}
	return Output{Format: name, Path: path}, nil
}

// OutputError is a --report value that cannot be used.
type OutputError struct{ Arg, Why string }

func (e *OutputError) Error() string { return fmt.Sprintf("report %q: %s", e.Arg, e.Why) }

// Hint lists what can be asked for.
func (e *OutputError) Hint() string {
	return "formats are " + strings.Join(FormatNames(), ", ")
}

// FormatNames lists the formats, as they are written in FORMAT=PATH.
func FormatNames() []string {
	names := make([]string, 0, len(formats))
	for _, f := range formats {
		names = append(names, f.Name)
	}
	return names
}

// Format is one kind of report file.
type Format struct {
	Name string // in --report NAME=PATH
	File string // its usual file name
	Help string
	// Append tells that the file belongs to a CI service and other programs:
	// the report is added at its end.
	Append bool
	// Many tells that several runs fit into one file ([Set]).
	Many bool

	render func(io.Writer, []*Summary, *Options) error
}

var formats = []Format{
	{Name: "json", File: "report.json", Help: "everything that is known of the run", Many: true, render: renderJSON},
	{Name: "markdown", File: "report.md", Help: "for people", Many: true, render: renderMarkdown},
	{Name: "html", File: "report.html", Help: "one page without scripts", Many: true, render: renderHTML},
	{Name: "junit", File: "junit.xml", Help: "test report of most CI services", Many: true, render: renderJUnit},
	{Name: "sarif", File: "sarif.json", Help: "SARIF 2.1.0, for code scanning", Many: true, render: renderSARIF},
	{Name: "ctrf", File: "ctrf.json", Help: "Common Test Report Format", Many: true, render: renderCTRF},
	{Name: "checkstyle", File: "checkstyle.xml", Help: "Checkstyle XML", Many: true, render: renderCheckstyle},
	{Name: "codequality", File: "gl-code-quality-report.json", Help: "GitLab code quality", Many: true, render: renderCodeQuality},
	{Name: "dotenv", File: "nightshift.env", Help: "GitLab dotenv variables", render: single(renderDotenv)},
	{Name: "patch", File: "changes.patch", Help: "unified diff for git apply", render: single(renderPatch)},
	{Name: "mail-patch", File: "changes.mbox", Help: "mail patch for git am", render: single(renderMail)},
	{Name: "provenance", File: "provenance.intoto.json", Help: "in-toto statement in a DSSE envelope", render: single(renderProvenance)},
	{Name: "github-summary", Help: "GitHub step summary", Append: true, Many: true, render: renderStepSummary},
	{Name: "github-output", Help: "GitHub step outputs", Append: true, render: single(renderGitHubOutput)},
}

// DirOutputs are the files of --report-dir, with names relative to it. The log
// itself (events.jsonl) is written by [NewJSONLFile] while the run goes on.
func DirOutputs() []Output {
	var out []Output
	for _, name := range []string{"json", "markdown", "html", "junit", "sarif", "patch"} {
		f, _ := formatNamed(name)
		out = append(out, Output{Format: name, Path: f.File})
	}
	return out
}

func formatNamed(name string) (Format, bool) {
	for _, f := range formats {
		if f.Name == name {
			return f, true
		}
	}
	return Format{}, false
}

func single(render func(io.Writer, *Summary, *Options) error) func(io.Writer, []*Summary, *Options) error {
	return func(w io.Writer, runs []*Summary, o *Options) error {
		if len(runs) != 1 {
			return fmt.Errorf("this format describes one run, not %d", len(runs))
		}
		return render(w, runs[0], o)
	}
}

// Signer signs provenance. Key must be an ed25519 or ecdsa private key;
// signatures are deterministic, so that a replay gives the same bytes.
type Signer struct {
	Key   crypto.Signer
	KeyID string
}

// Options of the reports of one run.
type Options struct {
	// Create opens replaced files; Append opens files of a CI service, which
	// are added to.
	Create  Create
	Append  Create
	Outputs []Output
	// Sign signs the provenance; nil leaves the envelope unsigned.
	Sign *Signer
	// SummaryBytes is what may still be added to the GitHub step summary: 0
	// means the whole of [StepSummaryLimit].
	SummaryBytes int
	// PatchFile and ReportDir are handed to later steps of a CI job, if not "".
	PatchFile string
	ReportDir string
}

// Reporter is a sink that folds the records and writes the requested files when
// the log is closed, on every ending of a run. It creates nothing until then: a
// run that never began leaves older files alone.
type Reporter struct {
	o    Options
	fold *Fold
}

// NewReporter returns a reporter; it is an error to ask for an unknown format.
func NewReporter(o Options) (*Reporter, error) {
	for _, out := range o.Outputs {
		f, ok := formatNamed(out.Format)
		if !ok {
			return nil, &OutputError{Arg: out.Format + "=" + out.Path, Why: fmt.Sprintf("there is no report format %q", out.Format)}
		}
		if f.Append && o.Append == nil || !f.Append && o.Create == nil {
			return nil, fmt.Errorf("report %s: no way to open files was given", out.Format)
		}
	}
	return &Reporter{o: o, fold: NewFold()}, nil
}

// Handle folds the record.
func (r *Reporter) Handle(rec event.Record) error { r.fold.Add(rec); return nil }

// Close writes every requested file. A file that cannot be made does not keep
// the others from being written; the errors are joined.
func (r *Reporter) Close(context.Context) error {
	return WriteAll([]*Summary{r.fold.Summary()}, &r.o)
}

// Summary is the fold so far.
func (r *Reporter) Summary() *Summary { return r.fold.Summary() }

// WriteAll writes the requested outputs of o for the given runs.
func WriteAll(runs []*Summary, o *Options) error {
	var errs []error
	for _, out := range o.Outputs {
		if err := write(runs, o, out); err != nil {
			errs = append(errs, fmt.Errorf("write the %s report %s: %w", out.Format, out.Path, err))
		}
	}
	return errors.Join(errs...)
}

func write(runs []*Summary, o *Options, out Output) (err error) {
	f, ok := formatNamed(out.Format)
	if !ok {
		return fmt.Errorf("there is no such format")
	}
	open := o.Create
	if f.Append {
		open = o.Append
	}
	lazy := &lazyFile{open: open, path: out.Path}
	if err := f.render(lazy, runs, o); err != nil {
		return errors.Join(err, lazy.abort())
	}
	return lazy.close()
}

// Render writes one report to w; the caller owns w.
func Render(w io.Writer, format string, runs []*Summary, o *Options) error {
	f, ok := formatNamed(format)
	if !ok {
		return &OutputError{Arg: format, Why: fmt.Sprintf("there is no report format %q", format)}
	}
	if o == nil {
		o = &Options{}
	}
	return f.render(w, runs, o)
}

// lazyFile opens its file at the first byte, so that a report that fails before
// it has anything to say touches nothing. Small writes are gathered.
type lazyFile struct {
	open Create
	path string
	w    io.WriteCloser
	buf  []byte
}

const lazyBuffer = 64 << 10

func (f *lazyFile) Write(p []byte) (int, error) {
	f.buf = append(f.buf, p...)
	if len(f.buf) < lazyBuffer {
		return len(p), nil
	}
	return len(p), f.flush()
}

func (f *lazyFile) flush() error {
	if f.w == nil {
		w, err := f.open(f.path)
		if err != nil {
			return err
		}
		f.w = w
	}
	for len(f.buf) > 0 {
		n, err := f.w.Write(f.buf)
		f.buf = f.buf[n:]
		if err != nil {
			return err
		}
	}
	f.buf = nil
	return nil
}

// close also makes an empty report: it was asked for and is complete.
func (f *lazyFile) close() error {
	if err := f.flush(); err != nil {
		return errors.Join(err, f.abort())
	}
	return f.w.Close()
}

func (f *lazyFile) abort() error {
	if f.w == nil {
		return nil
	}
	if a, ok := f.w.(Aborter); ok {
		return a.Abort()
	}
	return f.w.Close()
}

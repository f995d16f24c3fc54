package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nightshift-ci/nightshift/sandbox"
)

// Dir is a workspace during a run. Its methods may be called from any
// goroutine.
type Dir struct {
	o    Options
	once sync.Once
	stop context.CancelFunc
	done chan struct{} // closed when the baseline is taken

	mu      sync.Mutex
	box     *sandbox.Sandbox // of git alone
	shared  *sandbox.Sandbox // of the run
	awaited bool             // Ready has succeeded: the run may have changed something

	// Written before done is closed.
	err    error
	scopes []*scope
	dirty  bool
	base   string
	notes  []string
}

// scope is one work tree of the workspace: the main one, a submodule, or a
// repository in an untracked folder.
type scope struct {
	prefix string // path in the workspace's root, "" or with a trailing slash
	view   *view
	first  snapshot
}

// Default bounds. A baseline must not delay the first command noticeably, and
// a patch must be of a size that a review can take.
const (
	defaultTimeout      = time.Minute
	defaultFileBytes    = 16 << 20
	defaultUntrackedAll = 128 << 20
	defaultEntries      = 50_000
	defaultPatchBytes   = 64 << 20
	maxNested           = 16 // repositories inside the workspace that are followed
)

func (b Bounds) withDefaults() Bounds {
	if b.Timeout <= 0 {
		b.Timeout = defaultTimeout
	}
	if b.FileBytes <= 0 {
		b.FileBytes = defaultFileBytes
	}
	if b.UntrackedAll <= 0 {
		b.UntrackedAll = defaultUntrackedAll
	}
	if b.Entries <= 0 {
		b.Entries = defaultEntries
	}
	if b.PatchBytes <= 0 {
		b.PatchBytes = defaultPatchBytes
	}
	return b
}

// Open prepares a workspace; nothing runs yet.
func Open(o Options) *Dir {
	o.Bounds = o.Bounds.withDefaults()
	return &Dir{o: o, done: make(chan struct{})}
}

// Start takes the baseline in the background, once. It ends early when ctx
// ends or Close is called.
func (d *Dir) Start(ctx context.Context) {
	d.once.Do(func() {
		ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), d.o.Timeout,
			fmt.Errorf("taking the state before the run took longer than %s", d.o.Timeout))
		d.stop = cancel
		go func() {
			defer close(d.done)
			d.err = d.baseline(ctx)
		}()
	})
}

// Ready waits for the baseline and starts it if need be. It must have returned
// before anything runs that may write in the workspace. Its error says why
// there is no baseline; the run may go on, and Diff will say the same.
func (d *Dir) Ready(ctx context.Context) error {
	d.Start(ctx)
	select {
	case <-d.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	d.mu.Lock()
	d.awaited = true
	d.mu.Unlock()
	return d.err
}

// Close ends what still runs, removes the private folder and reports what
// could not be removed.
func (d *Dir) Close() error {
	d.once.Do(func() { close(d.done) })
	if d.stop != nil {
		d.stop()
	}
	<-d.done
	d.mu.Lock()
	box := d.box
	d.box = nil
	d.mu.Unlock()
	var err error
	if box != nil {
		err = box.Close()
	}
	if d.o.Private == "" {
		return err
	}
	return errors.Join(err, os.RemoveAll(d.o.Private))
}

// Share lets git run in the run's own sandbox, as commands that see what it shows
// and can change nothing but Options.Private, which is its Spec.Side. Where that
// would show git something else than a sandbox of its own, git gets one. It must
// be called before Start; box must be settled before Diff, and closed after it.
func (d *Dir) Share(box *sandbox.Sandbox) {
	if !box.HasSide() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shared = box
}

// Shared tells whether git was let into the run's own sandbox.
func (d *Dir) Shared() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.shared != nil
}

// git is for calls that see what the user sees.
func (d *Dir) git() *gitRunner { return newGitRunner(d.o.Env, d.ownBox) }

// ownBox opens the read-only sandbox of git on first use.
func (d *Dir) ownBox(ctx context.Context) (Sandbox, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.box == nil {
		if err := os.MkdirAll(d.o.Private, 0o700); err != nil {
			return nil, fmt.Errorf("private folder for git: %w", err)
		}
		box, err := sandbox.Open(ctx, d.spec())
		if err != nil {
			return nil, err
		}
		d.box = box
	}
	return d.box, nil
}

// letIn gives the view's git the run's sandbox, if all that git looks at is there:
// the work tree, and the settings of the user, which are known to lead nowhere
// else when they are plain.
func (d *Dir) letIn(v *view) {
	d.mu.Lock()
	box := d.shared
	d.mu.Unlock()
	if box == nil || !v.plain || !box.Shows(v.root) {
		return
	}
	files := slices.Concat(v.git.userFiles("config"), v.git.homeFile(".gitconfig"), v.git.userFiles("ignore"), v.git.userFiles("attributes"), v.named)
	for _, file := range files {
		if rest, ok := strings.CutPrefix(file, "~/"); ok {
			file = strings.Join(v.git.homeFile(rest), "")
		}
		if exists(file) && !box.Shows(file) {
			return
		}
	}
	v.git.side = box
}

// spec lets git read what the run may read and write its private folder only.
func (d *Dir) spec() sandbox.Spec {
	s := d.o.Spec
	s.Mode = sandbox.ReadOnly
	s.Workspace = d.top()
	s.Write = []string{d.o.Private}
	s.ProtectNames, s.Side = nil, ""
	s.Net = sandbox.Net{Mode: sandbox.NetOff}
	s.HostTmp = true // a workspace may lie below /tmp; nothing there is writable
	s.TmpDir = ""
	return s
}

// top is the folder that is looked at: the work tree, or the working folder
// outside git.
func (d *Dir) top() string {
	if d.o.Facts.Root != "" {
		return d.o.Facts.Root
	}
	return d.o.Facts.Dir
}

func (d *Dir) baseline(ctx context.Context) error {
	if d.o.Facts.Root == "" {
		if err := countable(d.o.Facts.Dir, d.o.Bounds); err != nil {
			return err
		}
	}
	if err := d.addScope(ctx, d.o.Facts, ""); err != nil {
		return err
	}
	d.nested(ctx)
	return d.findBase(ctx)
}

func (d *Dir) addScope(ctx context.Context, source Facts, prefix string) error {
	v, err := d.newView(ctx, source, filepath.Join(d.top(), prefix), filepath.Join(d.o.Private, fmt.Sprintf("git%d", len(d.scopes))))
	if err != nil {
		return err
	}
	if prefix == "" { // git folders of others may lie anywhere
		d.letIn(v)
	}
	first, err := v.before(ctx, d.o.Bounds)
	if err != nil {
		return err
	}
	d.scopes = append(d.scopes, &scope{prefix: prefix, view: v, first: first})
	return nil
}

// nested follows repositories inside the workspace, breadth first, since git
// looks at none of them from outside. One that cannot be followed costs a
// note, not the baseline.
func (d *Dir) nested(ctx context.Context) {
	for i := 0; i < len(d.scopes); i++ {
		at := d.scopes[i]
		inside := slices.Concat(at.view.submodules(ctx), at.view.links, at.first.nested)
		slices.Sort(inside)
		for _, path := range slices.Compact(inside) {
			prefix := at.prefix + path + "/"
			if len(d.scopes) > maxNested {
				d.notes = append(d.notes, prefix+": a repository of its own, one too many to follow")
				continue
			}
			source, problem := nestedFacts(filepath.Join(d.top(), prefix))
			if source.Root == "" {
				if problem != "" {
					d.notes = append(d.notes, prefix+": "+problem)
				}
				continue
			}
			if err := d.addScope(ctx, source, prefix); err != nil {
				d.notes = append(d.notes, fmt.Sprintf("%s: a repository of its own that cannot be followed: %v", prefix, err))
			}
		}
	}
}

// nestedFacts reads the repository whose top is dir; it does not look above,
// and it does not follow links, which could lead out of the workspace.
func nestedFacts(dir string) (Facts, string) {
	dir = filepath.Clean(dir)
	if real, err := filepath.EvalSymlinks(dir); err != nil || real != dir {
		return Facts{}, ""
	}
	gitDir, problem := gitFolder(dir)
	if gitDir == "" {
		return Facts{}, problem
	}
	f := Facts{Dir: dir, Root: dir, GitDir: gitDir}
	f.readRepository()
	return f, ""
}

// findBase learns the commit the patch applies to, and whether the folder held
// just what that commit and its submodules say.
func (d *Dir) findBase(ctx context.Context) error {
	d.base = d.o.Facts.Commit
	if d.o.Facts.Root == "" {
		return nil
	}
	if d.base == "" {
		d.base = d.scopes[0].view.resolve(ctx, "HEAD^{commit}")
	}
	for _, s := range d.scopes {
		if s.first.clean {
			continue
		}
		committed := s.view.resolve(ctx, "HEAD^{tree}")
		if committed == "" {
			committed = s.view.emptyTree(ctx)
		}
		d.dirty = d.dirty || committed != s.first.tree || s.first.differs || len(s.first.nested) > 0
	}
	return ctx.Err()
}

package rollout

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/nightshift-ci/nightshift/runner/event"
)

// maxLine bounds one line. A line holds at most one item, and the largest items
// are images.
const maxLine = 256 << 20

// maxForkDepth bounds how many threads a fork of a fork may refer to.
const maxForkDepth = 32

// Read loads a thread without locking it.
func (s *Store) Read(i Info) (History, error) {
	b := builder{h: History{Info: i}}
	if err := s.load(&b, i.Path, -1, 0); err != nil {
		return History{}, err
	}
	return b.finish()
}

// load applies the lines of a file with an ordinal below end (-1: all), and
// first those of the file that it continues.
func (s *Store) load(b *builder, path string, end int64, depth int) error {
	return eachLine(path, func(text []byte) error {
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			b.broken++
			return nil
		}
		if end >= 0 && l.Ordinal != nil && *l.Ordinal >= end {
			return errStop
		}
		if l.Type != typeMeta {
			b.add(l)
			return nil
		}
		var m sessionMeta
		if err := json.Unmarshal(l.Payload, &m); err != nil {
			b.broken++
			return nil
		}
		if b.h.Base == "" && m.Base != nil {
			b.h.Base = m.Base.Text
		}
		if m.HistoryBase == nil || m.HistoryBase.ThreadID == "" {
			return nil
		}
		if depth >= maxForkDepth {
			return fmt.Errorf("thread %s: more than %d forks of forks", b.h.ID, maxForkDepth)
		}
		parent, err := s.findID(m.HistoryBase.ThreadID)
		if err != nil {
			return fmt.Errorf("thread %s continues another one: %w", b.h.ID, err)
		}
		return s.load(b, parent.Path, m.HistoryBase.End, depth+1)
	})
}

var errStop = errors.New("no further lines are wanted")

// eachLine calls f for every line that is not empty, without its newline. An
// error of f ends it; errStop is not an error.
func eachLine(path string, f func([]byte) error) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("thread: %w", err)
	}
	defer file.Close()
	br := bufio.NewReaderSize(file, 64<<10)
	for n := 1; ; n++ {
		text, err := readLine(br)
		if errors.Is(err, errLongLine) {
			return fmt.Errorf("%s:%d: %w", path, n, err)
		}
		if text = bytes.TrimSpace(text); len(text) > 0 {
			if e := f(text); e != nil {
				if errors.Is(e, errStop) {
					return nil
				}
				return e
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", path, n, err)
		}
	}
}

var errLongLine = fmt.Errorf("a line is longer than %d bytes", maxLine)

// readLine reads up to a newline within the bound.
func readLine(br *bufio.Reader) ([]byte, error) {
	var text []byte
	for {
		part, err := br.ReadSlice('\n')
		text = append(text, part...)
		if len(text) > maxLine {
			return nil, errLongLine
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return text, err
		}
	}
}

// Resume locks a thread, repairs its end and loads it. A thread that stays
// locked is a *BusyError.
func (s *Store) Resume(ctx context.Context, i Info) (*Writer, History, error) {
	lock, err := s.lock(ctx, i.ID)
	if err != nil {
		return nil, History{}, err
	}
	w := &Writer{id: i.ID, path: i.Path, store: s, lock: lock}
	h, err := s.resume(w, i)
	if err != nil {
		if w.file != nil {
			err = errors.Join(err, w.file.Close())
		}
		return nil, History{}, errors.Join(err, lock.release())
	}
	return w, h, nil
}

func (s *Store) resume(w *Writer, i Info) (History, error) {
	repaired, err := repair(i.Path)
	if err != nil {
		return History{}, fmt.Errorf("thread %s: %w", i.ID, err)
	}
	h, err := s.Read(i)
	if err != nil {
		return History{}, err
	}
	if repaired > 0 {
		h.Notices = append(h.Notices, event.Notice{
			Class: "thread_repaired", Origin: i.Path,
			Message: fmt.Sprintf("the last line of thread %s was incomplete; its %d bytes were removed", i.ID, repaired),
		})
	}
	if h.next, err = nextOrdinal(i.Path); err != nil {
		return History{}, err
	}
	w.ordinal = h.next
	w.file, err = os.OpenFile(i.Path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return History{}, fmt.Errorf("thread %s: %w", i.ID, err)
	}
	return h, nil
}

// repair makes a file end with a whole line. A last line that is whole but for
// its newline gets one; a torn one is cut off. It returns the bytes cut.
func repair(path string) (int64, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	start, last, err := lastLine(f, st.Size())
	if err != nil || len(last) == 0 {
		return 0, err
	}
	if json.Valid(last) {
		if _, err := f.WriteAt([]byte("\n"), st.Size()); err != nil {
			return 0, err
		}
		return 0, f.Sync()
	}
	if err := f.Truncate(start); err != nil {
		return 0, err
	}
	return int64(len(last)), f.Sync()
}

// lastLine returns what stands after the last newline, and where it begins.
func lastLine(f *os.File, size int64) (int64, []byte, error) {
	const block = 64 << 10
	var last []byte
	for at := size; at > 0; {
		n := min(at, block)
		buf := make([]byte, n)
		if _, err := f.ReadAt(buf, at-n); err != nil {
			return 0, nil, err
		}
		at -= n
		if i := bytes.LastIndexByte(buf, '\n'); i >= 0 {
			return at + int64(i) + 1, append(buf[i+1:], last...), nil
		}
		last = append(buf, last...)
		if len(last) > maxLine {
			return 0, nil, errLongLine
		}
	}
	return 0, last, nil
}

// nextOrdinal is the ordinal that the next line of a paginated file must have;
// nil for a file without ordinals.
func nextOrdinal(path string) (*int64, error) {
	var next *int64
	err := eachLine(path, func(text []byte) error {
		var l struct {
			Ordinal *int64 `json:"ordinal"`
		}
		if json.Unmarshal(text, &l) == nil && l.Ordinal != nil {
			n := *l.Ordinal + 1
			next = &n
		}
		return nil
	})
	return next, err
}

// Fork starts a new thread that begins with the history of i.
func (s *Store) Fork(ctx context.Context, i Info, m Meta) (*Writer, History, error) {
	h, err := s.Read(i)
	if err != nil {
		return nil, History{}, err
	}
	if m.Base == "" {
		m.Base = h.Base
	}
	w, err := s.create(ctx, m, func(meta *sessionMeta) { meta.ForkedFrom = i.ID })
	if err != nil {
		return nil, History{}, err
	}
	for _, it := range h.Items {
		if err := w.write(typeItem, it.Raw); err != nil {
			return nil, History{}, errors.Join(err, w.Close())
		}
	}
	if err := w.write(typeEvent, tokenCount{Type: "token_count", Info: &tokenInfo{Total: fromUsage(h.Usage), Last: fromUsage(h.Last)}}); err != nil {
		return nil, History{}, errors.Join(err, w.Close())
	}
	h.ID, h.Path = w.id, w.path
	return w, h, nil
}

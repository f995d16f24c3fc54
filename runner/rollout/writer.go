package rollout

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/model"
)

// Writer appends to one thread. A nil *Writer writes nothing (an ephemeral
// thread). Its methods may be called from any goroutine; the first error is
// kept and returned by every later call, so that a file never has a hole.
type Writer struct {
	id, path string
	store    *Store
	lock     *threadLock

	mu    sync.Mutex
	file  *os.File
	err   error
	turn  string
	asks  bool // the prompt of the turn has not been recorded yet
	dirty bool // lines since the last sync
	// ordinal of the next line when the file is in the paginated layout.
	ordinal *int64
}

// ID is the thread's id.
func (w *Writer) ID() string {
	if w == nil {
		return ""
	}
	return w.id
}

// Path is the thread's file.
func (w *Writer) Path() string {
	if w == nil {
		return ""
	}
	return w.path
}

// Create opens a new thread for writing.
func (s *Store) Create(m Meta) (*Writer, error) {
	return s.create(context.Background(), m, nil)
}

func (s *Store) create(ctx context.Context, m Meta, change func(*sessionMeta)) (*Writer, error) {
	if m.ID == "" {
		m.ID = NewID()
	}
	if _, err := uuid.Parse(m.ID); err != nil {
		return nil, fmt.Errorf("thread id %q: %w", m.ID, err)
	}
	now := s.now()
	dir := filepath.Join(s.Home, "sessions", now.Local().Format("2006/01/02"))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("folder of threads: %w", err)
	}
	lock, err := s.lock(ctx, m.ID)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "rollout-"+now.Local().Format("2006-01-02T15-04-05")+"-"+m.ID+".jsonl")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("file of thread %s: %w", m.ID, err), lock.release())
	}
	w := &Writer{id: m.ID, path: path, store: s, lock: lock, file: f}
	meta := newMeta(m, now)
	if change != nil {
		change(&meta)
	}
	if err := w.write(typeMeta, meta); err != nil {
		closed := w.Close() // a thread that cannot be written says it again
		if !errors.Is(closed, err) {
			closed = errors.Join(err, closed)
		}
		return nil, errors.Join(closed, os.Remove(path))
	}
	return w, nil
}

func newMeta(m Meta, now time.Time) sessionMeta {
	or := func(s, other string) string {
		if s == "" {
			return other
		}
		return s
	}
	meta := sessionMeta{
		ID: m.ID, SessionID: m.ID, Parent: m.ParentID, Timestamp: stamp(now), Cwd: m.Cwd,
		Originator: or(m.Originator, "codex_exec"), CLIVersion: or(m.Version, "0.0.0"),
		ThreadSource: or(m.ThreadSource, "user"), Provider: m.Provider,
	}
	meta.Source, _ = event.Marshal(or(m.Source, "exec")) // a string always encodes
	if m.ParentID != "" {
		meta.Source, _ = event.Marshal(map[string]any{"subagent": map[string]any{"thread_spawn": map[string]any{"parent_thread_id": m.ParentID, "depth": 1}}})
	}
	if m.Base != "" {
		meta.Base = &baseText{m.Base}
	}
	if m.Git != nil {
		meta.Git = &gitInfo{Commit: m.Git.Commit, Branch: m.Git.Branch, Repository: m.Git.Remote}
	}
	return meta
}

// write appends one line with one write call. A line that could not be written
// whole is cut off again, as far as the file system lets us.
func (w *Writer) write(kind string, payload any) error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.append(kind, payload)
}

func (w *Writer) append(kind string, payload any) error {
	if w.err != nil {
		return w.err
	}
	if w.file == nil {
		return errors.New("the thread is closed")
	}
	body, err := event.Marshal(payload)
	if err == nil {
		body, err = event.Marshal(line{Timestamp: stamp(w.store.now()), Ordinal: w.ordinal, Type: kind, Payload: body})
	}
	if err != nil {
		return fmt.Errorf("thread %s: %w", w.id, err)
	}
	if w.store.Mask != nil {
		body = w.store.Mask.MaskJSON(body)
	}
	if bytes.IndexByte(body, '\n') >= 0 {
		var flat bytes.Buffer
		if err := json.Compact(&flat, body); err != nil {
			return fmt.Errorf("thread %s: %w", w.id, err)
		}
		body = flat.Bytes()
	}
	before, err := w.file.Stat()
	if err != nil {
		return w.fail(err)
	}
	w.dirty = true
	if _, err := w.file.Write(append(body, '\n')); err != nil {
		return w.fail(errors.Join(err, w.file.Truncate(before.Size())))
	}
	if w.ordinal != nil {
		next := *w.ordinal + 1
		w.ordinal = &next
	}
	return nil
}

func (w *Writer) fail(err error) error {
	w.err = fmt.Errorf("thread %s can no longer be saved: %w", w.id, err)
	return w.err
}

// Turn begins a turn.
func (w *Writer) Turn(t TurnContext) error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.turn, w.asks = t.TurnID, true
	if err := w.append(typeEvent, map[string]any{
		"type": "task_started", "turn_id": t.TurnID, "started_at": w.store.now().Unix(), "model_context_window": nil,
	}); err != nil {
		return err
	}
	c := turnContext{
		TurnID: t.TurnID, Cwd: t.Cwd, Approval: t.Approval, Model: t.Model, Effort: t.Effort, Summary: t.Summary,
		Sandbox: sandboxPolicy{Type: t.Sandbox},
	}
	if c.Approval == "" {
		c.Approval = "never"
	}
	if c.Summary == "" {
		c.Summary = "auto"
	}
	if t.Sandbox == "workspace-write" {
		c.Sandbox.Writable, c.Sandbox.Network = t.Writable, &t.Network
	}
	return w.append(typeTurn, c)
}

// Item appends one item of the history. The first message of the user in a turn
// is the turn's prompt and, like the model's messages, is recorded as an event
// too: lists of threads show those.
func (w *Writer) Item(it model.Item) error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.append(typeItem, it.Raw); err != nil {
		return err
	}
	if w.asks && isPrompt(it.Raw) {
		w.asks = false
		var m message
		if err := json.Unmarshal(it.Raw, &m); err != nil {
			return fmt.Errorf("thread %s: %w", w.id, err)
		}
		return w.append(typeEvent, map[string]any{
			"type": "user_message", "message": m.lastText(), "images": []string{}, "local_images": []string{}, "text_elements": []string{},
		})
	}
	if text := assistantText(it.Raw); text != "" {
		return w.append(typeEvent, map[string]any{"type": "agent_message", "message": text})
	}
	return nil
}

// assistantText is the text of a message of the model.
func assistantText(raw []byte) string {
	var m message
	if !bytes.Contains(raw, []byte("assistant")) || json.Unmarshal(raw, &m) != nil || m.Type != "message" || m.Role != "assistant" {
		return ""
	}
	return m.text()
}

// Usage appends the usage of one response, and the totals of turn and thread
// that include it.
func (w *Writer) Usage(responseID string, response, turn, thread event.Usage) error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.append(typeUsage, usageRecord{
		ThreadID: w.id, TurnID: w.turn, SessionID: w.id, RootTurn: w.turn, ResponseID: responseID,
		Usage: fromUsage(response), Turn: fromUsage(turn), Thread: fromUsage(thread),
	}); err != nil {
		return err
	}
	return w.append(typeEvent, tokenCount{Type: "token_count", Info: &tokenInfo{Total: fromUsage(thread), Last: fromUsage(response)}})
}

// Compacted tells that the history before it was replaced by items.
func (w *Writer) Compacted(summary string, items []model.Item) error {
	c := compacted{Message: summary, Replacement: []json.RawMessage{}}
	for _, it := range items {
		c.Replacement = append(c.Replacement, it.Raw)
	}
	if err := w.write(typeCompacted, c); err != nil {
		return err
	}
	return w.Sync()
}

// Event appends an event_msg line; payload is an object with a "type".
func (w *Writer) Event(payload json.RawMessage) error { return w.write(typeEvent, payload) }

// EndTurn ends a turn and forces it to disk. abortReason "" means that the
// turn completed.
func (w *Writer) EndTurn(turnID, lastMessage, abortReason string) error {
	var end map[string]any
	if abortReason == "" {
		end = map[string]any{"type": "task_complete", "turn_id": turnID, "last_agent_message": lastMessage}
	} else {
		end = map[string]any{"type": "turn_aborted", "turn_id": turnID, "reason": abortWord(abortReason)}
	}
	if err := w.write(typeEvent, end); err != nil {
		return err
	}
	return w.Sync()
}

// abortWord maps a reason to one that the reference knows.
func abortWord(reason string) string {
	switch reason = strings.TrimSpace(reason); reason {
	case "interrupted", "replaced", "review_ended", "budget_limited":
		return reason
	}
	return "interrupted"
}

// Sync forces what was written to disk.
func (w *Writer) Sync() error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sync()
}

func (w *Writer) sync() error {
	if w.err != nil || w.file == nil || !w.dirty {
		return w.err
	}
	w.dirty = false
	if err := w.file.Sync(); err != nil {
		return w.fail(err)
	}
	return nil
}

// Close syncs, closes and unlocks. It may be called more than once.
func (w *Writer) Close() error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file == nil {
		return w.err
	}
	err := errors.Join(w.sync(), w.file.Close(), w.lock.release())
	w.file = nil
	return err
}

package event

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"
)

// Record is an event with its place in the log. JSON:
// {"seq":1,"time":"2026-01-31T10:00:00.123456789Z","type":"turn.started",…}.
type Record struct {
	Seq   uint64
	Time  time.Time
	Event Event
}

// Kind is the kind of the record's event.
func (r Record) Kind() Kind { return r.Event.kind() }

// MarshalJSON writes the record as one object.
func (r Record) MarshalJSON() ([]byte, error) {
	if u, ok := r.Event.(Unknown); ok {
		return u.Raw, nil
	}
	head, err := Marshal(struct {
		Seq  uint64    `json:"seq"`
		Time time.Time `json:"time"`
		Type Kind      `json:"type"`
	}{r.Seq, r.Time.UTC(), r.Event.kind()})
	if err != nil {
		return nil, err
	}
	body, err := Marshal(r.Event)
	if err != nil {
		return nil, err
	}
	return join(head, body), nil
}

// Wire returns the line of the reference's stream: the event without seq and
// time.
func (r Record) Wire() ([]byte, error) {
	head, err := Marshal(struct {
		Type Kind `json:"type"`
	}{r.Event.kind()})
	if err != nil {
		return nil, err
	}
	body, err := Marshal(r.Event)
	if err != nil {
		return nil, err
	}
	return join(head, body), nil
}

// UnmarshalJSON reads a record; lines of a bare wire stream have no seq and no
// time.
func (r *Record) UnmarshalJSON(b []byte) error {
	var head struct {
		Seq  uint64    `json:"seq"`
		Time time.Time `json:"time"`
		Type Kind      `json:"type"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return err
	}
	if head.Type == "" {
		return errors.New(`event has no "type"`)
	}
	r.Seq, r.Time = head.Seq, head.Time
	read, ok := decoders[head.Type]
	if !ok {
		r.Event = Unknown{Type: head.Type, Raw: bytes.Clone(b)}
		return nil
	}
	e, err := read(b)
	if err != nil {
		return fmt.Errorf("event %s: %w", head.Type, err)
	}
	r.Event = e
	return nil
}

func reader[T Event](b []byte) (Event, error) { v, err := decode[T](b); return v, err }

var decoders = map[Kind]func([]byte) (Event, error){
	KindThreadStarted: reader[ThreadStarted], KindTurnStarted: reader[TurnStarted],
	KindItemStarted: reader[ItemStarted], KindItemUpdated: reader[ItemUpdated],
	KindItemCompleted: reader[ItemCompleted], KindTurnCompleted: reader[TurnCompleted],
	KindTurnFailed: reader[TurnFailed], KindError: reader[Error],
	KindRunStarted: reader[RunStarted], KindSandboxEnforced: reader[SandboxEnforced],
	KindCredentialSelected: reader[CredentialSelected], KindAuthRefreshed: reader[AuthRefreshed],
	KindInstructionsLoaded: reader[InstructionsLoaded], KindServerStatus: reader[ServerStatus],
	KindModelRequest: reader[ModelRequest], KindModelResponse: reader[ModelResponse],
	KindModelRetried: reader[ModelRetried], KindModelFallback: reader[ModelFallback],
	KindHistoryCompacted: reader[HistoryCompacted], KindPolicyDecision: reader[PolicyDecision],
	KindToolCompleted: reader[ToolCompleted], KindHookCompleted: reader[HookCompleted],
	KindVerifyCompleted: reader[VerifyCompleted], KindSchemaChecked: reader[SchemaChecked],
	KindFindingReported: reader[FindingReported], KindLimitReached: reader[LimitReached],
	KindAgentEvent: reader[AgentEvent], KindNotice: reader[Notice],
	KindDiffCaptured: reader[DiffCaptured], KindTelemetryFlushed: reader[TelemetryFlushed],
	KindRunCompleted: reader[RunCompleted],
}

// DecodeError is a line of a log that is not a record.
type DecodeError struct {
	Line int // from 1
	Err  error
}

func (e *DecodeError) Error() string {
	return fmt.Sprintf("line %d is not a record of an event log: %v", e.Line, e.Err)
}
func (e *DecodeError) Unwrap() error { return e.Err }

// Hint says what an event log is.
func (e *DecodeError) Hint() string {
	return "an event log is what --events FILE or --report-dir DIR (events.jsonl) wrote; the stream of --json is not one"
}

// Decode reads JSONL records one by one. A line that is not a record yields an
// error that names the line number, and ends the sequence. Lines may be of any
// length; one is held in memory at a time.
func Decode(r io.Reader) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		br := bufio.NewReaderSize(r, 64<<10)
		for n := 1; ; n++ {
			line, err := br.ReadBytes('\n')
			if trimmed := bytes.TrimSpace(line); len(trimmed) > 0 {
				var rec Record
				if e := json.Unmarshal(trimmed, &rec); e != nil {
					yield(Record{}, &DecodeError{n, e})
					return
				}
				if !yield(rec, nil) {
					return
				}
			}
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(Record{}, &DecodeError{n, err})
				return
			}
		}
	}
}

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/nightshift-ci/nightshift/runner"
	"github.com/nightshift-ci/nightshift/runner/event"
	"github.com/nightshift-ci/nightshift/runner/tool"
)

// keyFromStdin takes the first line of stdin as the key; the rest may still be
// the prompt.
func (s *session) keyFromStdin(src *promptSources) (string, error) {
	if !s.flags.APIKeyStdin {
		return "", nil
	}
	key, rest, err := keyLine(s.rt.ctx, *src)
	if err != nil {
		return "", err
	}
	s.mask.Add(key, "api-key-stdin")
	src.reader = rest
	return key, nil
}

// maxKey bounds the line of a key, in bytes.
const maxKey = 64 << 10

// keyLine reads the key of --api-key-stdin; rest is what follows it.
func keyLine(ctx context.Context, src promptSources) (key string, rest io.Reader, err error) {
	if isTerminal(src.reader) {
		return "", nil, usageError("--api-key-stdin: stdin is a terminal; pipe the key")
	}
	br := bufio.NewReaderSize(src.reader, maxKey)
	var line []byte
	var failed error
	done := make(chan struct{})
	go func() { // it cannot be stopped; it ends with the process
		defer close(done)
		line, failed = br.ReadSlice('\n')
	}()
	if werr := src.await(ctx, done, nil); werr != nil {
		var silent *silentError
		if errors.As(werr, &silent) {
			werr = usageHint("pipe the key in, or wait longer with --idle-prompt-wait", "--api-key-stdin: %v", silent)
		}
		return "", nil, werr
	}
	switch {
	case errors.Is(failed, bufio.ErrBufferFull):
		return "", nil, usageError("--api-key-stdin: the first line of stdin is longer than %d KiB, which is no key", maxKey>>10)
	case failed != nil && !errors.Is(failed, io.EOF):
		return "", nil, usageError("--api-key-stdin: stdin could not be read: %v", failed)
	}
	if key = strings.TrimSpace(string(line)); key == "" {
		return "", nil, usageError("--api-key-stdin: the first line of stdin is empty; is it a variable that is not set?")
	}
	return key, br, nil
}

// readPrompt waits for stdin no longer than the run may take.
func (s *session) readPrompt(src promptSources) (string, error) {
	if s.job.prompt != nil {
		return *s.job.prompt, nil
	}
	ctx, cancel := context.WithCancelCause(s.rt.ctx)
	defer cancel(nil)
	if w := s.policy.Config().Limits.MaxWallTime; w > 0 {
		defer time.AfterFunc(w, func() { cancel(&runner.LimitError{Limit: "max_wall", Max: w.String(), Used: w.String()}) }).Stop()
	}
	return s.rt.prompt(ctx, src)
}

// readImages loads the images of -i. One that is missing stops the run here,
// since the answer would be about something else.
func (s *session) readImages() ([]runner.Image, error) {
	var out []runner.Image
	for _, p := range s.flags.Image {
		data, err := s.rt.readInput(s.rt.abs(p), maxImage)
		if err != nil {
			return nil, usageHint("relative names start at the folder that the command is called in, not at -C; a list is separated by commas",
				"-i %s: the image cannot be read: %v", p, errText(err))
		}
		mime, err := tool.ImageType(data)
		if err != nil {
			return nil, usageHint("the service refuses a request with such an image: convert it, or leave it out", "-i %s %w", p, err)
		}
		out = append(out, runner.Image{Path: p, Data: data, MIME: mime})
	}
	return out, nil
}

func (s *session) readSchema() (*runner.Schema, error) {
	if s.flags.OutputSchema == "" {
		return nil, nil
	}
	data, err := s.rt.readInput(s.rt.abs(s.flags.OutputSchema), maxConfig)
	if err != nil {
		return nil, usageError("failed to read output schema file %s: %v", s.flags.OutputSchema, errText(err))
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")) // some editors begin a file with it
	schema, err := runner.ParseSchema(s.flags.OutputSchema, data)
	if err != nil {
		return nil, exitError{code: runner.ExitUsage, err: err}
	}
	if len(schema.Unsupported) > 0 {
		s.notices = append(s.notices, event.Notice{Class: "schema_keywords", Message: "the output schema uses keywords that the service's strict mode may refuse: " + strings.Join(schema.Unsupported, ", ")})
	}
	return schema, nil
}

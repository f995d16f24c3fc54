package event

import "io"

// Redactor masks secrets; it is the Masker of a Log.
type Redactor struct{}

// NewRedactor returns a redactor that knows no secret.
func NewRedactor() *Redactor { return &Redactor{} }

// Add makes r mask secret, shown as name. It tells whether it will be masked.
func (r *Redactor) Add(secret, name string) bool { return len(secret) >= 6 }

// Notices are about secrets that are too short to be masked.
func (r *Redactor) Notices() []Notice { return nil }

// MaskJSON masks in an encoded record; the result is valid JSON.
func (r *Redactor) MaskJSON(line []byte) []byte { return line }

// Mask masks in plain text.
func (r *Redactor) Mask(text string) string { return text }

// Writer masks what is written to it, across the borders of writes.
func (r *Redactor) Writer(w io.Writer) *RedactWriter { return &RedactWriter{w: w} }

// RedactWriter is a stream that masks.
type RedactWriter struct{ w io.Writer }

// Write masks p.
func (w *RedactWriter) Write(p []byte) (int, error) { return w.w.Write(p) }

// Flush writes what is held back.
func (w *RedactWriter) Flush() error { return nil }

// Close flushes.
func (w *RedactWriter) Close() error { return nil }

package secret

import "io"

// room is how much a Writer collects before it looks at it.
const room = 32 << 10

// Writer replaces secrets in what is written to it, also those that straddle writes. It holds back
// what may be the beginning of a secret until Close. It has one writer at a time.
type Writer struct {
	to       io.Writer
	redactor *Redactor
	text     []byte
	covered  int // bytes of text that belong to a secret with its mark
	out      []byte
	err      error
}

// NewWriter returns a Writer to another one.
func (r *Redactor) NewWriter(to io.Writer) *Writer { return &Writer{to: to, redactor: r} }

// Write takes all of p, unless an earlier write to the other writer has failed.
func (w *Writer) Write(p []byte) (int, error) {
	if w.redactor == nil || len(w.redactor.begins) == 0 {
		return w.to.Write(p)
	}
	for n := 0; n < len(p); {
		if w.err != nil {
			return n, w.err
		}
		more := min(len(p)-n, room)
		w.text = append(w.text, p[n:n+more]...)
		n += more
		if len(w.text) >= 2*w.redactor.longest+room {
			w.flush(len(w.text) - w.redactor.longest + 1)
		}
	}
	return len(p), w.err
}

// flush writes the text before limit.
func (w *Writer) flush(limit int) {
	w.out, w.covered = w.redactor.redact(w.out[:0], w.text, w.covered, limit)
	w.text = w.text[:copy(w.text, w.text[limit:])]
	if len(w.out) > 0 && w.err == nil {
		_, w.err = w.to.Write(w.out)
	}
}

// Close writes what is held back. It does not close the other writer.
func (w *Writer) Close() error {
	if w.redactor != nil {
		w.flush(len(w.text))
	}
	return w.err
}

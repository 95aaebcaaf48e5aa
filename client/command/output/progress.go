package output

import (
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	// ProgressDelay is how long work goes on before its progress is shown.
	ProgressDelay = time.Second
	// ProgressEvery is how often the progress is redrawn.
	ProgressEvery = 200 * time.Millisecond
	progressCells = 24
)

// Progress is a progress bar: one line of a terminal that is drawn over itself. The methods of a
// nil Progress do nothing.
type Progress struct {
	w       io.Writer
	width   int   // of the terminal, in columns
	total   int64 // bytes to read; 0 if unknown
	started time.Time
	shown   bool
}

// NewProgress returns the progress of work that begins at started and reads total bytes (0:
// unknown). It is nil if stderr is no terminal.
func (o *Output) NewProgress(total int64, started time.Time) *Progress {
	if o.StderrWidth == 0 {
		return nil
	}
	return &Progress{w: o.Stderr, width: o.StderrWidth, total: total, started: started}
}

// Started returns when the work began.
func (p *Progress) Started() time.Time { return p.started }

// Shorten takes n off the total.
func (p *Progress) Shorten(n int64) { p.total -= n }

// Draw shows how far the work is: bytes read and events stored.
func (p *Progress) Draw(now time.Time, bytes int64, events uint64) {
	if p == nil || now.Sub(p.started) < ProgressDelay {
		return
	}
	text := fmt.Sprintf("%s  %s/s", Plural(events, "event"), Number(uint64(float64(events)/now.Sub(p.started).Seconds())))
	if p.total > 0 {
		done := min(float64(bytes)/float64(p.total), 1)
		full := int(done * progressCells)
		text = fmt.Sprintf("%3.0f%% [%s%s] %s", 100*done, strings.Repeat("=", full), strings.Repeat(" ", progressCells-full), text)
	}
	p.Say(text)
}

// Say shows a text in place of the last one.
func (p *Progress) Say(text string) {
	if p == nil {
		return
	}
	// Carriage return before, erase to the end of the line after (ECMA-48 EL).
	fmt.Fprintf(p.w, "\r%s\x1b[K", Cut(text, p.width-1))
	p.shown = true
}

// Clear erases the line, so that other text can be written there.
func (p *Progress) Clear() {
	if p == nil || !p.shown {
		return
	}
	fmt.Fprint(p.w, "\r\x1b[K")
	p.shown = false
}

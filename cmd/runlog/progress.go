package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	// progressDelay keeps short work quiet.
	progressDelay = time.Second
	// progressEvery is how often the bar moves.
	progressEvery = 200 * time.Millisecond
	progressCells = 24
)

// progress draws one line over itself on a terminal. All methods of a nil progress do nothing.
type progress struct {
	w       io.Writer
	width   int   // of the terminal
	total   int64 // bytes to read; 0 when nobody knows
	started time.Time
	shown   bool
}

// draw shows how far the work is: bytes read and events stored.
func (p *progress) draw(now time.Time, bytes int64, events uint64) {
	if p == nil || now.Sub(p.started) < progressDelay {
		return
	}
	text := fmt.Sprintf("%s  %s/s", plural(events, "event"), number(uint64(float64(events)/now.Sub(p.started).Seconds())))
	if p.total > 0 {
		done := min(float64(bytes)/float64(p.total), 1)
		full := int(done * progressCells)
		text = fmt.Sprintf("%3.0f%% [%s%s] %s", 100*done, strings.Repeat("=", full), strings.Repeat(" ", progressCells-full), text)
	}
	p.say(text)
}

// say shows what the work is at.
func (p *progress) say(text string) {
	// Carriage return before, erase to the end of the line after (ECMA-48 EL).
	fmt.Fprintf(p.w, "\r%s\x1b[K", cut(text, p.width-1))
	p.shown = true
}

// clear takes the line away, so that something else can be written there.
func (p *progress) clear() {
	if p == nil || !p.shown {
		return
	}
	fmt.Fprint(p.w, "\r\x1b[K")
	p.shown = false
}

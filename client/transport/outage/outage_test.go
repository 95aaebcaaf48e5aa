package outage_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"runlog/client/transport/outage"
)

// journal returns a logger, and a function that returns the lines since its last call: when each
// was logged, after the first call of journal, and what it says.
func journal() (*slog.Logger, func() []string) {
	began, text := time.Now(), new(bytes.Buffer)
	logger := slog.New(slog.NewTextHandler(text, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Duration("at", a.Value.Time().Sub(began))
		}
		return a
	}}))
	return logger, func() []string {
		lines := strings.Split(strings.TrimSpace(text.String()), "\n")
		text.Reset()
		return lines
	}
}

func want(t *testing.T, got []string, lines ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(lines, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(lines, "\n"))
	}
}

// TestLog: an outage has a line when it begins, then fewer and fewer, and one when it is over.
func TestLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		logger, lines := journal()
		log := outage.Log{Logger: logger}
		fails := func(d time.Duration) {
			for range d / time.Second {
				log.Failed(t.Context(), "cannot poll; retrying", "queue", "q")
				time.Sleep(time.Second)
			}
		}
		log.Succeeded(t.Context(), "polls again", "queue", "q")
		want(t, lines(), "")
		fails(4 * time.Minute)
		want(t, lines(),
			"at=0s level=WARN msg=\"cannot poll; retrying\" queue=q",
			"at=30s level=WARN msg=\"cannot poll; retrying\" queue=q failures=31 lasts=30s",
			"at=1m30s level=WARN msg=\"cannot poll; retrying\" queue=q failures=91 lasts=1m30s",
			"at=3m30s level=WARN msg=\"cannot poll; retrying\" queue=q failures=211 lasts=3m30s")
		log.Succeeded(t.Context(), "polls again", "queue", "q")
		log.Succeeded(t.Context(), "polls again", "queue", "q")
		want(t, lines(), "at=4m0s level=INFO msg=\"polls again\" queue=q lasted=4m0s")
		time.Sleep(time.Minute)
		fails(10 * time.Hour)
		if n := len(lines()); n < 40 || n > 50 {
			t.Errorf("ten hours have %d lines", n)
		}
	})
}

// TestComesAndGoes: an outage that begins a moment after the last line is logged only if it lasts.
// One that begins later is logged at once, and a failure long after the last one is another outage.
func TestComesAndGoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		logger, lines := journal()
		log := outage.Log{Logger: logger}
		for range 10 {
			log.Failed(t.Context(), "fails")
			time.Sleep(time.Second)
			log.Succeeded(t.Context(), "works")
			time.Sleep(time.Second)
		}
		want(t, lines(), "at=0s level=WARN msg=fails", "at=1s level=INFO msg=works lasted=1s")
		time.Sleep(10 * time.Second)
		log.Failed(t.Context(), "fails")
		time.Sleep(10 * time.Minute)
		log.Failed(t.Context(), "fails")
		want(t, lines(), "at=30s level=WARN msg=fails", "at=10m30s level=WARN msg=fails")
	})
}

// TestDebug: what is not logged at level warn is there at level debug.
func TestDebug(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		log := outage.Log{Logger: slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))}
		for i := range 5 {
			log.Failed(t.Context(), "fails", "n", fmt.Sprint(i))
		}
		if debug, warn := strings.Count(text.String(), "level=DEBUG"), strings.Count(text.String(), "level=WARN"); debug != 4 || warn != 1 {
			t.Errorf("logged\n%s", text.String())
		}
	})
}

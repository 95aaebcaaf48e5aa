package sim

import (
	"context"
	"log/slog"
	"sync"
)

// What nodes do of their own accord, and must do in a run that is to mean something.
const (
	Installs    = "installs"    // of a snapshot that came from a leader
	Truncations = "truncations" // of a log's begin
	Overruled   = "overruled"   // ends of logs, by another leader
	Leaders     = "leaders"     // who have taken over
	LostAfter   = "lostAfter"   // a loss of power took what a failed sync had left
)

// seenIn tells by what the nodes log that they have done something. "leadership" is logged by who
// begins and by who ends.
var seenIn = map[string]string{
	"a checkpoint was installed": Installs, "compacting logs": Truncations, "clearing log suffix": Overruled, "leadership": Leaders,
	"what a failed sync left is lost": LostAfter,
}

// seen counts what nodes do.
type seen struct {
	mu     sync.Mutex
	counts map[string]int
}

// watching is a handler of logs that counts, and passes on to another one.
type watching struct {
	slog.Handler
	seen *seen
}

func (h watching) Enabled(context.Context, slog.Level) bool { return true }

func (h watching) WithAttrs(attrs []slog.Attr) slog.Handler {
	return watching{h.Handler.WithAttrs(attrs), h.seen}
}

func (h watching) WithGroup(name string) slog.Handler {
	return watching{h.Handler.WithGroup(name), h.seen}
}

func (h watching) Handle(ctx context.Context, r slog.Record) error {
	if what := seenIn[r.Message]; what != "" && begins(r) {
		h.seen.mu.Lock()
		h.seen.counts[what]++
		h.seen.mu.Unlock()
	}
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// begins is false for who says that it does not lead any more.
func begins(r slog.Record) bool {
	yes := true
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "leading" {
			yes = a.Value.Bool()
		}
		return yes
	})
	return yes
}

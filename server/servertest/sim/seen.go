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

// seen counts what nodes do, and knows which of them leads.
type seen struct {
	mu     sync.Mutex
	counts map[string]int
	leads  string // the host that became the leader last; empty: it follows again
}

// leader returns the host that leads; empty where none does.
func (s *seen) leader() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leads
}

// note takes in a record of a host's log. What hashicorp/raft says of its state comes before any
// call can be answered in that state.
func (s *seen) note(host string, r slog.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.Message == "entering leader state":
		s.leads = host
	case s.leads == host && (r.Message == "entering follower state" || r.Message == "entering candidate state"):
		s.leads = ""
	}
	if what := seenIn[r.Message]; what != "" && begins(r) {
		s.counts[what]++
	}
}

// watching is a handler of logs that counts, and passes on to another one.
type watching struct {
	slog.Handler
	seen *seen
	host string // whose log it is; empty: the world's
}

func (h watching) Enabled(context.Context, slog.Level) bool { return true }

func (h watching) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		if a.Key == "node" {
			h.host = a.Value.String()
		}
	}
	h.Handler = h.Handler.WithAttrs(attrs)
	return h
}

func (h watching) WithGroup(name string) slog.Handler {
	h.Handler = h.Handler.WithGroup(name)
	return h
}

func (h watching) Handle(ctx context.Context, r slog.Record) error {
	h.seen.note(h.host, r)
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

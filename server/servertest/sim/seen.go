package sim

import (
	"context"
	"log/slog"
	"sync"
)

// Events of the nodes themselves. A run that has few of them proves little.
const (
	Installs    = "installs"    // of a leader's snapshot
	Truncations = "truncations" // of the start of a log
	Overruled   = "overruled"   // ends of logs, by another leader
	Leaders     = "leaders"     // elections
	LostAfter   = "lostAfter"   // a loss of power took what a failed sync had left
)

const (
	enteringLeader = "entering leader state"
	lostPages      = "lost pages of a failed sync"
)

// seenIn maps messages of the nodes' logs to these events. Most of them are hashicorp/raft's.
var seenIn = map[string]string{
	"a checkpoint was installed": Installs, "compacting logs": Truncations, "clearing log suffix": Overruled, enteringLeader: Leaders,
	lostPages: LostAfter,
}

// seen reads the nodes' logs: it counts their events, and knows which node leads.
type seen struct {
	mu     sync.Mutex
	counts map[string]int
	leads  string // the host that became the leader last; empty: it stopped leading
	// changed is called when the leader changes.
	changed func()
}

// leader returns the host that leads; empty where none does.
func (s *seen) leader() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leads
}

// note reads a record of a host's log. hashicorp/raft logs a new state before it acts in it.
func (s *seen) note(host string, r slog.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.Message == enteringLeader:
		s.leads = host
		s.changed()
	case s.leads == host && (r.Message == "entering follower state" || r.Message == "entering candidate state"):
		s.leads = ""
		s.changed()
	}
	if what := seenIn[r.Message]; what != "" {
		s.counts[what]++
	}
}

// watching is a slog.Handler that passes records to seen and to another handler.
type watching struct {
	slog.Handler
	seen *seen
	host string // that the log belongs to; empty: the world's log
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

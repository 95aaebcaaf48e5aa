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
	Released    = "released"    // restored clusters, by an operator
	Cosigned    = "cosigned"    // checkpoints, by the witness
)

const (
	enteringLeader = "entering leader state"
	lostPages      = "lost pages of a failed sync"
	becameLetter   = "an event became a dead letter"
)

// seenIn maps messages of the nodes' logs to these events. Most of them come from hashicorp/raft.
var seenIn = map[string]string{
	"a checkpoint was installed": Installs, "compacting logs": Truncations, "clearing log suffix": Overruled, enteringLeader: Leaders,
	lostPages: LostAfter,
}

// member is a life of a node. A life that has ended may write to its log for a while.
type member struct {
	host string
	life int64
}

// seen reads the nodes' logs: it counts their events and alerts, and knows which node leads.
type seen struct {
	mu     sync.Mutex
	counts map[string]int
	leads  member // that became the leader last; zero: it stopped leading
	// leaders are all that believe that they lead: an earlier leader may hear late of another.
	leaders map[member]bool
	// changed is called when a leader begins or ends.
	changed func()
	// parked is called when a node makes a dead letter of an event.
	parked func(subscription, run string, seq uint64)
}

// leader returns the host that leads; empty where none does.
func (s *seen) leader() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leads.host
}

// count counts an event of the nodes, or of their operator.
func (s *seen) count(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[what]++
}

// of returns how often an event was counted.
func (s *seen) of(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[what]
}

// note reads a record of a member's log. hashicorp/raft logs a new state before it acts in it.
func (s *seen) note(m member, r slog.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.Message == enteringLeader:
		s.leads, s.leaders[m] = m, true
		s.changed()
	case s.leaders[m] && (r.Message == "entering follower state" || r.Message == "entering candidate state"):
		if delete(s.leaders, m); s.leads == m {
			s.leads = member{}
		}
		s.changed()
	case r.Message == becameLetter:
		of := attributes(r)
		s.parked(of["subscription"].String(), of["run"].String(), of["seq"].Uint64())
	}
	if what := seenIn[r.Message]; what != "" {
		s.counts[what]++
	}
	if r.Level >= slog.LevelWarn {
		if alert, raised := attributes(r)["alert"]; raised {
			s.counts[alert.String()]++
		}
	}
}

func attributes(r slog.Record) map[string]slog.Value {
	of := map[string]slog.Value{}
	r.Attrs(func(a slog.Attr) bool {
		of[a.Key] = a.Value
		return true
	})
	return of
}

// watching is a slog.Handler that passes records to seen and to another handler.
type watching struct {
	slog.Handler
	seen *seen
	of   member // that the log belongs to; zero: the world's log
}

func (h watching) Enabled(context.Context, slog.Level) bool { return true }

func (h watching) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		switch a.Key {
		case "node":
			h.of.host = a.Value.String()
		case "life":
			h.of.life = a.Value.Int64()
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
	h.seen.note(h.of, r)
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

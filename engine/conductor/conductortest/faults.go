package conductortest

import "slices"

// Op names an operation of the API.
type Op string

// The operations.
const (
	OpDefine     Op = "define" // the definitions of workflows and tasks, reads too
	OpStart      Op = "start"
	OpGet        Op = "get" // a workflow, or its status
	OpCorrelated Op = "correlated"
	OpPause      Op = "pause"
	OpResume     Op = "resume"
	OpTerminate  Op = "terminate"
	OpRetry      Op = "retry"
	OpSkip       Op = "skip"
	OpPoll       Op = "poll" // one task, or a batch
	OpUpdate     Op = "update"
	OpTask       Op = "task"
	OpLog        Op = "log"
	OpHealth     Op = "health"
)

type effect int

const (
	fails effect = iota
	losesAnswer
	redelivers
	hides
)

// fault is what becomes of some requests. A request has at most one.
type fault struct {
	effect effect
	left   int
	ops    []Op // none: all
}

func (s *Server) add(f *fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, f)
}

// Fail answers the next n requests of some operations, or without any of all, with 500. They have
// no effect.
func (s *Server) Fail(n int, ops ...Op) { s.add(&fault{effect: fails, left: n, ops: ops}) }

// LoseAnswers lets the next n requests of some operations, or without any of all, take effect, and
// breaks their connections in place of the answer.
func (s *Server) LoseAnswers(n int, ops ...Op) {
	s.add(&fault{effect: losesAnswer, left: n, ops: ops})
}

// Redeliver leaves the tasks of the next n polls that find one in their queues: they are polled
// twice.
func (s *Server) Redeliver(n int) {
	s.add(&fault{effect: redelivers, left: n, ops: []Op{OpPoll}})
}

// HideCorrelated lets the next n searches by correlation id find nothing, as an index does that
// lags behind, or a database whose row is locked.
func (s *Server) HideCorrelated(n int) {
	s.add(&fault{effect: hides, left: n, ops: []Op{OpCorrelated}})
}

// take returns the fault of a request; nil: it has none. The caller holds the mutex.
func (s *Server) take(op Op, effects ...effect) *fault {
	for _, f := range s.faults {
		if f.left > 0 && slices.Contains(effects, f.effect) && (len(f.ops) == 0 || slices.Contains(f.ops, op)) {
			f.left--
			return f
		}
	}
	return nil
}

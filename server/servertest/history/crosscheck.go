package history

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"

	"github.com/anishathalye/porcupine"

	"runlog/proto/contract"
)

// crossCheckSteps is the most steps of a search, which takes some seconds. It is no duration: the
// verdict must not depend on the machine, and in a bubble of fake time no time passes during a
// search.
const crossCheckSteps = 1_000_000

// ErrUndecided means that the search was stopped. The history may be right or wrong.
var ErrUndecided = errors.New("history: the search for an order took too long")

// CrossCheck asks porcupine whether the appends and linearizable reads of each run are linearizable
// (I8). A run is a list of events, and the final logs are reads after everything. It shares only
// types with Check. It is for about 60 operations a run; beyond that the search may not end, which
// returns ErrUndecided.
func CrossCheck(h *History, finals ...*Final) error {
	ends := make([]map[string]*Read, len(finals))
	for i, f := range finals {
		ends[i] = f.reads()
	}
	byRun := map[string]*orderSearch{}
	of := func(run string) *orderSearch {
		s := byRun[run]
		if s == nil {
			s = &orderSearch{left: crossCheckSteps}
			for _, end := range ends {
				if end[run] == nil {
					end[run] = &Read{Outcome: Outcome{Status: Acknowledged}}
				}
				s.ends = append(s.ends, end[run])
			}
			byRun[run] = s
		}
		return s
	}
	for i := range h.Ops {
		op := &h.Ops[i]
		if op.answered() && op.Return < op.Call {
			// porcupine's search would not end
			return fmt.Errorf("history: #%d was answered before its call", i)
		}
		for run, step := range op.steps {
			of(run).add(op, step)
		}
	}
	for _, end := range ends {
		for run := range end {
			if !ofCluster(run) {
				of(run) // It may have no operation.
			}
		}
	}
	var faults []error
	for _, run := range sortedKeys(byRun) {
		if err := byRun[run].search(); err != nil {
			faults = append(faults, fmt.Errorf("run %s, %d operations: %w", run, len(byRun[run].ops), err))
		}
	}
	return errors.Join(faults...)
}

// reads returns a node's runs as reads.
func (f *Final) reads() map[string]*Read {
	m := map[string]*Read{}
	for i := range f.Records {
		r := &f.Records[i]
		read := m[r.Run]
		if read == nil {
			read = &Read{Run: r.Run, Outcome: Outcome{Status: Acknowledged}}
			m[r.Run] = read
		}
		read.LastSeq++
		read.Events = append(read.Events, Seen{r.RunSeq, r.PersistedAt, r.EventID, r.Key})
	}
	return m
}

// orderSearch searches for an order of a run's operations.
type orderSearch struct {
	ops  []porcupine.Operation
	end  int64   // of all that was answered
	ends []*Read // what the nodes have in the end
	left int     // steps
	// closed counts the operations that have an answer.
	closed int
}

func (s *orderSearch) add(op *Op, step crossStep) {
	o := porcupine.Operation{Input: step, Call: op.Call, Return: op.Return}
	s.end = max(s.end, op.Call, op.Return)
	if step.open {
		o.Return = math.MaxInt64
		if !s.mayHaveHappened(step.asked) || s.triedBefore(op.Call, step.asked) {
			return
		}
	} else {
		s.closed++
	}
	s.ops = append(s.ops, o)
}

// mayHaveHappened reports whether an append without an answer can have had an effect: all of its
// events are there in the end.
func (s *orderSearch) mayHaveHappened(a *Append) bool {
	return len(s.ends) == 0 || !slices.ContainsFunc(a.Events, func(e Event) bool {
		return !slices.ContainsFunc(s.ends[0].Events, func(seen Seen) bool { return seen.Key == e.Key })
	})
}

// triedBefore reports whether an equal append was called earlier and has no answer either. If the
// later one had an effect, the earlier one can have had it at that moment, and the later one none.
func (s *orderSearch) triedBefore(call int64, a *Append) bool {
	return slices.ContainsFunc(s.ops, func(o porcupine.Operation) bool {
		step := o.Input.(crossStep)
		return o.Call <= call && step.open && slices.Equal(step.asked.Events, a.Events) && equal(step.asked.Expected, a.Expected)
	})
}

func equal(a, b *uint64) bool { return a == b || a != nil && b != nil && *a == *b }

func (s *orderSearch) search() error {
	for _, read := range s.ends {
		if !slices.Equal(read.Events, s.ends[0].Events) {
			return errors.New("nodes differ in the end")
		}
		s.ops = append(s.ops, porcupine.Operation{Input: crossStep{apply: read.replay}, Call: s.end + 1, Return: s.end + 2})
		s.closed++
	}
	model := porcupine.Model{
		Init:  func() any { return crossState{} },
		Step:  func(state, input, _ any) (bool, any) { return s.step(state.(crossState), input.(crossStep)) },
		Equal: func(a, b any) bool { return slices.Equal(a.(crossState).run, b.(crossState).run) },
		Hash:  func(state any) uint64 { return state.(crossState).run.hash() },
	}
	switch ok := porcupine.CheckOperations(model, s.ops); {
	case ok:
		return nil
	case s.left < 0:
		return ErrUndecided
	default:
		return errors.New("no order of the operations explains the answers")
	}
}

// crossState is the state at a point of an order.
type crossState struct {
	run    crossRun
	closed int // operations to which an answer came
}

// step tries an operation next. A run only grows: a state that is no prefix of the final run leads
// nowhere. An append without an answer that changes nothing is placed last; trying other places
// would double the search for each.
func (s *orderSearch) step(state crossState, step crossStep) (bool, crossState) {
	if s.left--; s.left < 0 {
		return false, state
	}
	next, ok := step.apply(state.run)
	switch {
	case !ok, step.open && len(next) == len(state.run) && state.closed < s.closed:
		return false, state
	case len(s.ends) > 0 && !s.begins(next, len(state.run)):
		return false, state
	case !step.open:
		state.closed++
	}
	state.run = next
	return true, state
}

// begins reports whether a run's events, from one on, are those of the final run.
func (s *orderSearch) begins(run crossRun, from int) bool {
	for i := from; i < len(run); i++ {
		if i >= len(s.ends[0].Events) || s.ends[0].Events[i].Key != run[i].key {
			return false
		}
	}
	return true
}

// crossRun is a run in the model: events by runSeq. It is immutable.
type crossRun []crossEvent

// crossEvent is an event. Fields that are not known yet are empty.
type crossEvent struct {
	key         string
	content     Digest
	eventID     string
	persistedAt int64
}

// crossStep is an operation. apply returns the run after it, and whether the operation would have
// had the recorded answer.
type crossStep struct {
	apply func(crossRun) (crossRun, bool)
	// open: the operation has no answer. If it had no effect, its place is last.
	open  bool
	asked *Append
}

// steps reads what the op did to runs that must be linearizable.
func (o *Op) steps(yield func(string, crossStep) bool) {
	for i := range o.Appends {
		a := &o.Appends[i]
		step := crossStep{}
		switch {
		case a.Status == Unknown:
			step = crossStep{a.try, true, a}
		case a.Status == Acknowledged:
			step.apply = a.replay
		case a.refusedFor(contract.ReasonSequenceConflict):
			step.apply = a.conflict
		default:
			continue // It has no effect, and shows nothing.
		}
		if !yield(a.Run, step) {
			return
		}
		if a.Status == Acknowledged && a.Resent && a.LastSeq != 0 {
			// The answer may be that of a later try.
			end := crossStep{apply: func(run crossRun) (crossRun, bool) { return run, uint64(len(run)) == a.LastSeq }}
			if !yield(a.Run, end) {
				return
			}
		}
	}
	if r := o.Read; r != nil && r.answers() && !r.Local {
		yield(r.Run, crossStep{apply: r.replay})
	}
	if s := o.Snapshot; s != nil && s.answers() && !s.Local && s.AsOfSeq == 0 {
		yield(s.Run, crossStep{apply: func(run crossRun) (crossRun, bool) { return run, uint64(len(run)) == s.LastEventSeq }})
	}
}

func (run crossRun) hash() uint64 {
	h := fnv.New64a()
	for i := range run {
		_, _ = h.Write([]byte(run[i].key)) // never fails
	}
	return h.Sum64()
}

func (run crossRun) index(key string) int {
	return slices.IndexFunc(run, func(e crossEvent) bool { return e.key == key })
}

// learn fills in an event from an answer. It returns false if the answer contradicts what is known.
func (run crossRun) learn(i int, eventID string, persistedAt int64) (crossRun, bool) {
	e := run[i]
	if e.eventID != "" && e.eventID != eventID || e.persistedAt != 0 && e.persistedAt != persistedAt {
		return run, false
	}
	if e.eventID != "" && e.persistedAt != 0 {
		return run, true
	}
	e.eventID, e.persistedAt = eventID, persistedAt
	run = slices.Clone(run)
	run[i] = e
	return run, true
}

// store applies an append by the rules of the contract. It returns which events were new, and
// whether the expectation held.
func (a *Append) store(run crossRun) (next crossRun, fresh []bool, ok bool) {
	next = slices.Clip(run)
	for i := range a.Events {
		e := &a.Events[i]
		is := next.index(e.Key) < 0
		fresh = append(fresh, is)
		if is {
			next = append(next, crossEvent{key: e.Key, content: e.Content, eventID: e.EventID})
		}
	}
	return next, fresh, len(next) == len(run) || a.Expected == nil || *a.Expected == uint64(len(run))
}

// try has an effect if the moment is right, else none.
func (a *Append) try(run crossRun) (crossRun, bool) {
	if next, _, ok := a.store(run); ok {
		return next, true
	}
	return run, true
}

func (a *Append) conflict(run crossRun) (crossRun, bool) {
	_, _, ok := a.store(run)
	return run, !ok && a.LastSeq == uint64(len(run))
}

func (a *Append) replay(run crossRun) (crossRun, bool) {
	next, fresh, ok := a.store(run)
	end := uint64(len(next))
	if !ok || len(a.Results) != len(a.Events) || a.LastSeq != 0 && (a.LastSeq < end || a.LastSeq > end && !a.Resent) {
		return run, false
	}
	for i := range a.Results {
		res := &a.Results[i]
		at := next.index(a.Events[i].Key)
		if res.RunSeq != uint64(at+1) || res.Idempotent == fresh[i] && !a.Resent || res.Diverged != (next[at].content != a.Events[i].Content) {
			return run, false
		}
		if next, ok = next.learn(at, res.EventID, res.PersistedAt); !ok {
			return run, false
		}
	}
	return next, true
}

func (r *Read) replay(run crossRun) (crossRun, bool) {
	if r.Status != Acknowledged {
		return run, len(run) == 0
	}
	end := r.AfterSeq + uint64(len(r.Events))
	beyond := len(r.Events) > 0 && (end > r.LastSeq || r.AfterSeq > r.LastSeq)
	if r.LastSeq != uint64(len(run)) || end < r.LastSeq && !r.More || beyond {
		return run, false
	}
	for i, e := range r.Events {
		at := int(r.AfterSeq) + i
		if e.RunSeq != uint64(at+1) || run[at].key != e.Key {
			return run, false
		}
		var ok bool
		if run, ok = run.learn(at, e.EventID, e.PersistedAt); !ok {
			return run, false
		}
	}
	return run, true
}

package storagetest

import (
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"runlog/storage"
)

// compound applies the operations of a command, all or none: if one is refused, the model is again
// what it was.
func (m *Model) compound(operations []Request, o *storage.Outcome) {
	before := m.clone()
	o.Answers = make([]storage.Answer, len(operations))
	for i, op := range operations {
		a := &o.Answers[i]
		m.operation(op, o, a)
		if a.Err == nil {
			continue
		}
		o.Err = a.Err
		if m.bug == bugHalfCompound && i > 0 {
			return
		}
		before.restore(m)
		for j := range o.Answers {
			o.Answers[j] = storage.Answer{Err: &storage.NotAppliedError{Operation: i}}
		}
		o.Answers[i].Err = o.Err
		return
	}
}

func (m *Model) operation(op Request, o *storage.Outcome, a *storage.Answer) {
	switch {
	case op.Append != nil:
		one := storage.Outcome{Position: o.Position, PersistedAt: o.PersistedAt}
		m.append(op.Append, &one)
		a.Err, a.Results, a.LastSeq = one.Err, one.Results, one.LastSeq
	case op.SetRef != nil:
		m.setRef(op.SetRef, a)
	case op.Update != nil:
		m.update(op.Update, a)
	default:
		m.write(op.Write, a)
	}
}

func (m *Model) write(w *Write, a *storage.Answer) {
	if w.Needs > m.level {
		a.Err = &storage.LevelError{Kind: WriterKind, Needs: w.Needs, Level: m.level}
		return
	}
	for _, r := range w.Rows {
		if r.Value == nil {
			delete(m.rows, r.Key)
		} else {
			m.rows[r.Key] = *r.Value
		}
	}
	last := uint64(0)
	if r := m.runs[w.RunID]; r != nil {
		last = r.run.LastSeq
	}
	if a.Err = w.refuse(m.rows, last); a.Err == nil {
		a.Reply = showRows(m.rows)
	}
}

// modelState is all that a command may change.
type modelState struct {
	model Model
	runs  map[*modelRun]modelRun
}

func (m *Model) clone() modelState {
	s := modelState{model: *m, runs: map[*modelRun]modelRun{}}
	s.model.runs, s.model.rows = maps.Clone(m.runs), maps.Clone(m.rows)
	s.model.marked = slices.Clone(m.marked)
	for _, r := range m.runs {
		saved := *r
		saved.byKey = maps.Clone(r.byKey)
		s.runs[r] = saved
	}
	return s
}

// restore keeps the runs where they are: commits point at them.
func (s modelState) restore(m *Model) {
	*m = s.model
	for r, saved := range s.runs {
		*r = saved
	}
}

// compound draws a command of several operations, or one of the machine Writer.
func (w *Workload) compound(t *rapid.T, runs int) Request {
	n := rapid.SampledFrom([]int{1, 2, 2, 3, 5}).Draw(t, "operations")
	var ops []Request
	for range n {
		if rapid.Bool().Draw(t, "write") {
			ops = append(ops, Request{Write: w.write(t, runs)})
			continue
		}
		run := rapid.IntRange(0, runs-1).Draw(t, "run")
		scope := w.scope(t, run)
		switch rapid.IntRange(0, 5).Draw(t, "operation") {
		case 0:
			ops = append(ops, w.metadata(t, run))
		case 1:
			a := w.append(t, run, scope, 0)
			a.Create = w.creation(t, run, scope)
			ops = append(ops, Request{Append: a})
		default:
			ops = append(ops, Request{Append: w.append(t, run, scope, 1)})
		}
	}
	if n == 1 && ops[0].Append == nil {
		return ops[0]
	}
	return Request{Compound: ops}
}

// write draws an operation of Writer, whose conditions hold most of the time where they were drawn
// for the command's begin.
func (w *Workload) write(t *rapid.T, runs int) *Write {
	key := rapid.Custom(func(t *rapid.T) string {
		return rapid.SampledFrom([]string{"T", "T", "Yx"}).Draw(t, "table") + fmt.Sprint(rapid.IntRange(0, 11).Draw(t, "row"))
	})
	out := &Write{}
	for range rapid.IntRange(0, 4).Draw(t, "rows") {
		r := WriteRow{Key: key.Draw(t, "key")}
		if rapid.IntRange(0, 3).Draw(t, "delete") < 3 {
			v := rapid.SampledFrom([]string{"", "a", "b", "longer than the others"}).Draw(t, "value")
			r.Value = &v
		}
		out.Rows = append(out.Rows, r)
	}
	switch rapid.IntRange(0, 7).Draw(t, "condition") {
	case 0:
		want := WriteRow{Key: key.Draw(t, "wanted")}
		if have, ok := w.Model.rows[want.Key]; ok {
			want.Value = &have
		}
		out.Want = &want
	case 1:
		out.RunID = runID(rapid.IntRange(0, runs-1).Draw(t, "run"))
		if r := w.Model.runs[out.RunID]; r != nil {
			out.LastSeq = r.run.LastSeq
		}
		out.LastSeq += rapid.Uint64Range(0, 2).Draw(t, "on")
	case 2:
		out.Needs = rapid.Uint32Range(1, 2).Draw(t, "level")
	}
	return out
}

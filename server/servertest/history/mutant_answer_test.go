package history

import (
	"slices"

	"runlog/proto/contract"
)

// appendMutants are wrong answers to appends.
var appendMutants = []mutant{
	{"an append is acknowledged with too few results", AckedIsStored, true, func(b *bench) bool {
		a, _, _ := b.result(func(*Append, *Event, *Result) bool { return true })
		a.Results = a.Results[1:]
		return true
	}},
	{"an append is acknowledged with another runSeq", AckedIsStored, true, func(b *bench) bool {
		_, _, res := b.result(func(_ *Append, _ *Event, r *Result) bool { return !r.Idempotent })
		res.RunSeq++
		return true
	}},
	{"an append is acknowledged under another id than was sent", AckedIsStored, true, func(b *bench) bool {
		_, e, _ := b.result(func(a *Append, e *Event, r *Result) bool {
			return !r.Idempotent && e.EventID != "" && len(a.Events) == 1
		})
		if e == nil {
			return false
		}
		e.EventID = "other"
		return true
	}},
	{"a duplicate is answered with another runSeq", OnePerKey, true, func(b *bench) bool {
		_, _, res := b.result(func(_ *Append, _ *Event, r *Result) bool { return r.Idempotent })
		res.RunSeq++
		return true
	}},
	{"a duplicate is answered with another id", OnePerKey, true, func(b *bench) bool {
		_, _, res := b.result(func(_ *Append, _ *Event, r *Result) bool { return r.Idempotent })
		res.EventID = "other"
		return true
	}},
	{"a duplicate is answered with another stamp", OnePerKey, true, func(b *bench) bool {
		_, _, res := b.result(func(_ *Append, _ *Event, r *Result) bool { return r.Idempotent })
		res.PersistedAt++
		return true
	}},
	{"a duplicate is answered as new", OnePerKey, true, func(b *bench) bool {
		a, _, res := b.result(func(a *Append, e *Event, r *Result) bool {
			rec := b.record(a.Run, r.RunSeq)
			return r.Idempotent && !r.Diverged && !a.Resent && (e.EventID == "" || e.EventID == rec.EventID) && b.acked(rec)
		})
		if a == nil {
			return false
		}
		res.Idempotent = false
		return true
	}},
	{"a new event is answered as a duplicate", OnePerKey, true, func(b *bench) bool {
		_, _, res := b.result(func(a *Append, _ *Event, r *Result) bool {
			return !r.Idempotent && b.alone(a)
		})
		if res == nil {
			return false
		}
		res.Idempotent = true
		return true
	}},
	{"a new event is said to have diverged", OnePerKey, true, func(b *bench) bool {
		_, _, res := b.result(func(_ *Append, _ *Event, r *Result) bool { return !r.Idempotent })
		res.Diverged = true
		return true
	}},
	{"a duplicate is said to have diverged", OnePerKey, true, func(b *bench) bool {
		_, _, res := b.result(func(_ *Append, _ *Event, r *Result) bool { return r.Idempotent && !r.Diverged })
		res.Diverged = true
		return true
	}},
	{"a divergence is not told", OnePerKey, true, func(b *bench) bool {
		_, _, res := b.result(func(_ *Append, _ *Event, r *Result) bool { return r.Diverged })
		if res == nil {
			return false
		}
		res.Diverged = false
		return true
	}},
	{"a conditional append went elsewhere", Linearizable, true, func(b *bench) bool {
		a, _, _ := b.result(func(a *Append, _ *Event, r *Result) bool { return a.Expected != nil && !r.Idempotent })
		if a == nil {
			return false
		}
		*a.Expected++
		return true
	}},
	{"an append says that the run is further than its own events", Linearizable, true, func(b *bench) bool {
		a, _, _ := b.result(func(a *Append, _ *Event, r *Result) bool {
			return !r.Idempotent && b.record(a.Run, a.LastSeq+1) != nil
		})
		a.LastSeq++
		return true
	}},
	{"an append says that the run is not as far as its own events", Linearizable, true, func(b *bench) bool {
		a, _, _ := b.result(func(a *Append, _ *Event, r *Result) bool { return !r.Idempotent && a.LastSeq > 1 })
		a.LastSeq--
		return true
	}},
	{"events of one append have two stamps", Stamped, false, func(b *bench) bool {
		a, _, _ := b.result(func(a *Append, _ *Event, _ *Result) bool {
			return len(a.Results) > 1 && !a.Results[0].Idempotent && !a.Results[1].Idempotent
		})
		a.Results[0].PersistedAt--
		return true
	}},
	{"events of one append are not together", Linearizable, true, func(b *bench) bool {
		a, _, _ := b.result(func(a *Append, _ *Event, _ *Result) bool {
			return len(a.Results) > 1 && !a.Results[0].Idempotent && !a.Results[1].Idempotent
		})
		a.Results[0], a.Results[1] = a.Results[1], a.Results[0]
		return true
	}},
	{"a conflict without a reason", Linearizable, true, func(b *bench) bool {
		return b.conflict(func(a *Append) bool { *a.Expected = a.LastSeq; return true })
	}},
	{"a conflict for a duplicate", Linearizable, true, func(b *bench) bool {
		// Its events were acknowledged before it was called.
		return b.conflict(func(a *Append) bool {
			first := b.record(a.Run, 1)
			op := b.opOf(a)
			if !b.acked(first) || b.sender(first).Return >= op.Call {
				return false
			}
			a.Events = []Event{{Key: first.Key, Content: first.Content}}
			return true
		})
	}},
	{"a conflict with a value from before the call", Linearizable, true, func(b *bench) bool {
		return b.conflict(func(a *Append) bool {
			if low := b.ackedBefore(a.Run, b.opOf(a).Call); low > 1 && *a.Expected != low-1 {
				a.LastSeq = low - 1
				return true
			}
			return false
		})
	}},
	{"a conflict with a value from after the call", Linearizable, true, func(b *bench) bool {
		return b.conflict(func(a *Append) bool {
			seq := b.calledAfter(a.Run, b.opOf(a).Return)
			a.LastSeq = seq
			return seq != 0 && *a.Expected != seq
		})
	}},
	{"an append was called after its event was seen", Linearizable, true, func(b *bench) bool {
		op := b.pick(func(op *Op) bool {
			if len(op.Appends) != 1 || len(op.Appends[0].Results) == 0 {
				return false
			}
			a := &op.Appends[0]
			rec := b.record(a.Run, a.Results[0].RunSeq)
			return !a.Results[0].Idempotent && b.lastSeen(a.Run, op) > rec.RunSeq
		})
		op.Call = b.history.Ops[len(b.history.Ops)-1].Call + 100_000
		op.Return = op.Call + 1
		return true
	}},
	{"an append came back before its call", WellFormed, true, func(b *bench) bool {
		return b.early(func(op *Op) bool { return len(op.Appends) > 0 && op.Return != 0 })
	}},
	{"a read came back before its call", WellFormed, true, func(b *bench) bool {
		return b.early(func(op *Op) bool { return op.Read != nil })
	}},
	{"a snapshot came back before its call", WellFormed, true, func(b *bench) bool {
		return b.early(func(op *Op) bool { return op.Snapshot != nil })
	}},
	{"a window came back before its call", WellFormed, true, func(b *bench) bool {
		return b.early(func(op *Op) bool { return op.Window != nil })
	}},
	{"a watermark came back before its call", WellFormed, true, func(b *bench) bool {
		return b.early(func(op *Op) bool { return op.Mark != nil })
	}},
	{"an op is nothing", WellFormed, false, func(b *bench) bool {
		b.history.Ops = append(b.history.Ops, Op{Client: "c", Call: 1})
		return true
	}},
	{"an op is two things", WellFormed, false, func(b *bench) bool {
		b.pick(func(op *Op) bool { return op.Read != nil }).Mark = &Mark{Run: "run-0"}
		return true
	}},
}

func (b *bench) early(is func(*Op) bool) bool {
	op := b.pick(func(op *Op) bool { return is(op) && op.answered() })
	op.Return = op.Call - 1
	return true
}

// conflict finds a conflict for which there is something to do.
func (b *bench) conflict(change func(*Append) bool) bool {
	return b.pick(func(op *Op) bool {
		for k := range op.Appends {
			if a := &op.Appends[k]; a.Reason == contract.ReasonSequenceConflict {
				before := *a
				if change(a) {
					return true
				}
				*a = before
			}
		}
		return false
	}) != nil
}

func (b *bench) opOf(a *Append) *Op {
	return b.pick(func(op *Op) bool {
		for k := range op.Appends {
			if &op.Appends[k] == a {
				return true
			}
		}
		return false
	})
}

// calledAfter returns the end of an acknowledged append that was called after a time, 0 if there is
// none.
func (b *bench) calledAfter(run string, at int64) (seq uint64) {
	b.pick(func(op *Op) bool {
		for k := range op.Appends {
			a := &op.Appends[k]
			if a.Run == run && op.Call > at && slices.ContainsFunc(a.Results, func(r Result) bool { return !r.Idempotent }) {
				seq = a.LastSeq
				return true
			}
		}
		return false
	})
	return seq
}

// lastSeen returns the highest runSeq that answers to appends, other than one op's, have given.
func (b *bench) lastSeen(run string, but *Op) (seq uint64) {
	for i := range b.history.Ops {
		if op := &b.history.Ops[i]; op != but {
			for k := range op.Appends {
				if a := &op.Appends[k]; a.Run == run && a.Status == Acknowledged {
					seq = max(seq, a.seen())
				}
			}
		}
	}
	return seq
}

// readMutants are wrong answers to reads.
var readMutants = []mutant{
	{"a read is stale", Linearizable, true, func(b *bench) bool {
		return b.read(func(op *Op, r *Read) bool {
			low := b.ackedBefore(r.Run, op.Call)
			if r.Local || low < 2 {
				return false
			}
			b.show(r, 0, low-1)
			return true
		})
	}},
	{"a read does not find a run that is there", Linearizable, true, func(b *bench) bool {
		return b.read(func(op *Op, r *Read) bool {
			if r.Local || b.ackedBefore(r.Run, op.Call) == 0 {
				return false
			}
			*r = Read{Run: r.Run, Outcome: Failed(contract.ReasonRunNotFound)}
			return true
		})
	}},
	{"a read sees what was not sent yet", Linearizable, true, func(b *bench) bool {
		return b.read(func(op *Op, r *Read) bool {
			seq := b.calledAfter(r.Run, op.Return)
			if r.Local || seq == 0 {
				return false
			}
			b.show(r, 0, seq)
			return true
		})
	}},
	{"a local read sees what was not sent yet", Linearizable, false, func(b *bench) bool {
		return b.read(func(op *Op, r *Read) bool {
			seq := b.calledAfter(r.Run, op.Return)
			if !r.Local || seq == 0 {
				return false
			}
			b.show(r, 0, seq)
			return true
		})
	}},
	{"a read sees more than there is", Linearizable, true, func(b *bench) bool {
		return b.read(func(_ *Op, r *Read) bool {
			if r.Local || r.More || len(r.Events) == 0 || r.LastSeq != b.lastSeq(r.Run) {
				return false
			}
			r.LastSeq++
			r.Events = append(r.Events, Seen{r.LastSeq, 1, "lost", "lost"})
			return true
		})
	}},
	{"a local read sees another event", Linearizable, false, func(b *bench) bool {
		return b.read(func(_ *Op, r *Read) bool {
			if !r.Local || len(r.Events) == 0 {
				return false
			}
			r.Events[0].EventID = "other"
			return true
		})
	}},
	{"a read leaves an event out", Linearizable, true, func(b *bench) bool {
		return b.read(func(_ *Op, r *Read) bool {
			if r.Local || len(r.Events) < 2 {
				return false
			}
			r.Events = r.Events[1:]
			return true
		})
	}},
	{"a read ends early", Linearizable, true, func(b *bench) bool {
		return b.read(func(_ *Op, r *Read) bool {
			if r.Local || r.More || len(r.Events) < 2 {
				return false
			}
			r.Events = r.Events[:1]
			return true
		})
	}},
	{"a local read has more than the run is told to have", Linearizable, false, func(b *bench) bool {
		return b.read(func(_ *Op, r *Read) bool {
			if !r.Local || r.More || len(r.Events) < 2 {
				return false
			}
			r.LastSeq--
			return true
		})
	}},
	{"a read has the events in another order", Linearizable, true, func(b *bench) bool {
		return b.read(func(_ *Op, r *Read) bool {
			if r.Local || len(r.Events) < 2 {
				return false
			}
			r.Events[0], r.Events[1] = r.Events[1], r.Events[0]
			return true
		})
	}},
	{"a read ends in the middle of an append", Linearizable, false, func(b *bench) bool {
		a, _, _ := b.result(func(a *Append, _ *Event, _ *Result) bool {
			return len(a.Results) > 1 && !a.Results[0].Idempotent && !a.Results[1].Idempotent
		})
		return b.read(func(op *Op, r *Read) bool {
			if !r.Local || r.Run != a.Run || op.Return < b.opOf(a).Return {
				return false
			}
			b.show(r, 0, a.Results[0].RunSeq)
			return true
		})
	}},
	{"a read has less than was waited for", Linearizable, false, func(b *bench) bool {
		return b.read(func(_ *Op, r *Read) bool {
			r.MinSeq = r.LastSeq + 1
			return r.Status == Acknowledged
		})
	}},
	{"a read is staler than a watermark", Linearizable, false, func(b *bench) bool {
		// The mark is further than all that appends had given.
		mark := b.pick(func(op *Op) bool {
			return op.Mark != nil && op.Mark.LastEventSeq > b.ackedBefore(op.Mark.Run, op.Call+1)
		})
		if mark == nil {
			return false
		}
		return b.read(func(op *Op, r *Read) bool {
			if r.Local || r.Run != mark.Mark.Run || op.Call <= mark.Call {
				return false
			}
			b.show(r, 0, mark.Mark.LastEventSeq-1)
			return r.LastSeq != 0
		})
	}},
}

// read finds a read for which there is something to do.
func (b *bench) read(change func(*Op, *Read) bool) bool {
	return b.pick(func(op *Op) bool { return op.Read != nil && op.answered() && change(op, op.Read) }) != nil
}

// show makes a read answer with what lies between two runSeqs.
func (b *bench) show(r *Read, after, last uint64) {
	*r = Read{Run: r.Run, Local: r.Local, AfterSeq: after, Outcome: Outcome{Status: Acknowledged}, LastSeq: last}
	for seq := after + 1; seq <= last; seq++ {
		rec := b.record(r.Run, seq)
		r.Events = append(r.Events, Seen{rec.RunSeq, rec.PersistedAt, rec.EventID, rec.Key})
	}
}

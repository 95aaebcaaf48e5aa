package history

import "slices"

// viewMutants are wrong snapshots, watermarks and windows.
var viewMutants = []mutant{
	{"a snapshot differs from the fold", SnapshotsFold, false, func(b *bench) bool {
		return b.snapshot(func(s *Snapshot) bool { s.Digest[0] ^= 1; return true })
	}},
	{"a snapshot has another status", SnapshotsFold, false, func(b *bench) bool {
		return b.snapshot(func(s *Snapshot) bool { s.RunStatus = "other"; return true })
	}},
	{"a snapshot is of another moment than it says", SnapshotsFold, false, func(b *bench) bool {
		return b.snapshot(func(s *Snapshot) bool { s.LastEventSeq--; return s.LastEventSeq > 0 })
	}},
	{"a snapshot is ahead of the log", SnapshotsFold, false, func(b *bench) bool {
		return b.snapshot(func(s *Snapshot) bool { s.LastEventSeq = b.lastSeq(s.Run) + 1; return true })
	}},
	{"a snapshot is older than was waited for", SnapshotsFold, false, func(b *bench) bool {
		return b.snapshot(func(s *Snapshot) bool { s.MinSeq = s.LastEventSeq + 1; return true })
	}},
	{"a snapshot is newer than was asked for", SnapshotsFold, false, func(b *bench) bool {
		return b.snapshot(func(s *Snapshot) bool { s.AsOfSeq = s.LastEventSeq - 1; return s.AsOfSeq > 0 })
	}},
	{"a snapshot is stale", Linearizable, true, func(b *bench) bool {
		return b.pick(func(op *Op) bool {
			s := op.Snapshot
			if s == nil || s.Status != Acknowledged || s.Local || s.AsOfSeq != 0 || b.ackedBefore(s.Run, op.Call) < 2 {
				return false
			}
			s.LastEventSeq = b.ackedBefore(s.Run, op.Call) - 1
			want := foldOne(b.runs[s.Run].records[:s.LastEventSeq])
			s.Digest, s.RunStatus = want.Digest, want.Status
			return true
		}) != nil
	}},
	{"a node's snapshot differs from the fold", SnapshotsFold, false, func(b *bench) bool {
		b.finals[1].Snapshots[0].Digest[0] ^= 1
		return true
	}},
	{"a node's snapshot is behind its log", SnapshotsFold, false, func(b *bench) bool {
		s := &b.finals[2].Snapshots[0]
		s.LastEventSeq--
		if s.LastEventSeq == 0 {
			return false
		}
		want := foldOne(b.runs[s.Run].records[:s.LastEventSeq])
		s.Digest, s.RunStatus = want.Digest, want.Status
		return true
	}},
	{"a watermark goes back", WatermarksRise, false, func(b *bench) bool {
		before := map[eventKey]uint64{}
		for i := range b.history.Ops {
			op := &b.history.Ops[i]
			if op.Mark == nil {
				continue
			}
			who := eventKey{op.Client, op.Mark.Run}
			if before[who] > 0 {
				op.Mark.LastEventSeq = before[who] - 1
				return true
			}
			before[who] = op.Mark.LastEventSeq
		}
		return false
	}},
	{"a watermark is ahead of the log", WatermarksRise, false, func(b *bench) bool {
		op := b.pick(func(op *Op) bool { return op.Mark != nil })
		op.Mark.LastEventSeq = b.lastSeq(op.Mark.Run) + 1
		return true
	}},
	{"a watermark is ahead of what was sent", WatermarksRise, false, func(b *bench) bool {
		// A subscriber's last one, so that it does not go back afterwards.
		for i := len(b.history.Ops) - 1; i >= 0; i-- {
			op := &b.history.Ops[i]
			if op.Mark == nil {
				continue
			}
			seq := b.calledAfter(op.Mark.Run, op.Return)
			op.Mark.LastEventSeq = max(seq, op.Mark.LastEventSeq)
			return seq != 0 && op.Mark.LastEventSeq == seq
		}
		return false
	}},
	{"a closed window lacks an event", WindowsClose, false, func(b *bench) bool {
		return b.window(func(w *Window) bool {
			if !w.Closed || len(w.Events) == 0 {
				return false
			}
			lost := w.Events[b.rand.IntN(len(w.Events))]
			b.answerWindow(w, w.To, slices.DeleteFunc(slices.Clone(b.log), func(r Record) bool { return r.EventID == lost }))
			return true
		})
	}},
	{"a closed window has another event", WindowsClose, false, func(b *bench) bool {
		return b.window(func(w *Window) bool {
			if !w.Closed || len(w.Events) == 0 {
				return false
			}
			w.Events[b.rand.IntN(len(w.Events))] = "other"
			return true
		})
	}},
	{"a closed window has an event too many", WindowsClose, false, func(b *bench) bool {
		return b.window(func(w *Window) bool {
			w.Events, w.Count = append(w.Events, b.log[0].EventID), w.Count+1
			return w.Closed
		})
	}},
	{"a closed window has another order", WindowsClose, false, func(b *bench) bool {
		return b.window(func(w *Window) bool {
			if !w.Closed || len(w.Events) < 2 {
				return false
			}
			w.Events[0], w.Events[1] = w.Events[1], w.Events[0]
			return true
		})
	}},
	{"a closed window has another digest", WindowsClose, false, func(b *bench) bool {
		return b.window(func(w *Window) bool { w.Digest[0] ^= 1; return w.Closed })
	}},
	{"a closed window has another count", WindowsClose, false, func(b *bench) bool {
		return b.window(func(w *Window) bool { w.Count++; return w.Closed })
	}},
	{"a window says that it is closed, and is not", WindowsClose, false, func(b *bench) bool {
		return b.window(func(w *Window) bool {
			if w.Closed {
				return false
			}
			w.Closed = true
			return true
		})
	}},
	{"a window is closed, and does not say so", WindowsClose, false, func(b *bench) bool {
		return b.window(func(w *Window) bool {
			if !w.Closed {
				return false
			}
			w.Closed = false
			return true
		})
	}},
	{"an open window lacks what it says is complete", WindowsClose, false, func(b *bench) bool {
		return b.window(func(w *Window) bool {
			if w.Closed || len(w.Events) == 0 {
				return false
			}
			w.Events, w.Count, w.Digest = nil, 0, Digest{}
			return true
		})
	}},
	{"an open window lacks the event at which it is complete", WindowsClose, false, func(b *bench) bool {
		return b.window(func(w *Window) bool {
			through := b.log[len(b.log)-1].PersistedAt
			*w = Window{From: 1, To: through + 1_000}
			b.answerWindow(w, through, b.log[:placeOf(b.log, through)])
			return true
		})
	}},
	{"a window sees what was not sent yet", Linearizable, false, func(b *bench) bool {
		return b.pick(func(op *Op) bool {
			if op.Window == nil || op.Window.Status != Acknowledged || b.calledAfter("run-0", op.Return) == 0 {
				return false
			}
			*op.Window = Window{From: 1, To: 1_000_000}
			b.answerWindow(op.Window, 1, b.log)
			return true
		}) != nil
	}},
	{"a window of nothing closes before an event that is sent later", WindowsClose, false, func(b *bench) bool {
		last := b.log[len(b.log)-1].PersistedAt
		return b.pick(func(op *Op) bool {
			if op.Window == nil || op.Window.Status != Acknowledged || b.calledAfter("run-0", op.Return) == 0 {
				return false
			}
			*op.Window = Window{
				From: 1, To: last + 1, Filter: Filter{RunID: "none"}, Outcome: Outcome{Status: Acknowledged}, CompleteThrough: last + 1, Closed: true,
			}
			return true
		}) != nil
	}},
	{"a node answers a closed window otherwise in the end", WindowsClose, false, func(b *bench) bool {
		for i := range b.finals[2].Windows {
			if w := &b.finals[2].Windows[i]; w.Closed && w.Count > 0 {
				w.Events, w.Count, w.Digest = nil, 0, Digest{}
				return true
			}
		}
		return false
	}},
}

func (b *bench) snapshot(change func(*Snapshot) bool) bool {
	return b.pick(func(op *Op) bool {
		return op.Snapshot != nil && op.Snapshot.Status == Acknowledged && change(op.Snapshot)
	}) != nil
}

func (b *bench) window(change func(*Window) bool) bool {
	return b.pick(func(op *Op) bool { return op.Window != nil && op.Window.Status == Acknowledged && change(op.Window) }) != nil
}

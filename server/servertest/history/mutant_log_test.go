package history

import "slices"

// logMutants are mistakes that all nodes share.
var logMutants = []mutant{
	{"an acknowledged event is lost", AckedIsStored, true, func(b *bench) bool {
		i := lastOf(b.finals[0].Records, b.acked)
		b.everywhere(func(rs []Record) []Record { return slices.Delete(rs, max(i, 0), i+1) })
		return i >= 0
	}},
	{"two acknowledged events have changed places", AckedIsStored, true, func(b *bench) bool {
		rs := b.finals[0].Records
		i := slices.IndexFunc(rs, func(r Record) bool {
			next := b.record(r.Run, r.RunSeq+1)
			return next != nil && b.acked(&r) && b.acked(next)
		})
		if i < 0 {
			return false
		}
		k := slices.IndexFunc(rs, func(r Record) bool { return r.Run == rs[i].Run && r.RunSeq == rs[i].RunSeq+1 })
		b.everywhere(func(rs []Record) []Record {
			x, y := &rs[i], &rs[k]
			x.Key, y.Key, x.EventID, y.EventID = y.Key, x.Key, y.EventID, x.EventID
			x.Content, y.Content, x.RecordDigest, y.RecordDigest = y.Content, x.Content, y.RecordDigest, x.RecordDigest
			return rs
		})
		return true
	}},
	{"an event has another stamp than was acknowledged", AckedIsStored, false, func(b *bench) bool {
		i := lastOf(b.finals[0].Records, b.acked)
		if i != len(b.finals[0].Records)-1 {
			return false
		}
		b.everywhere(func(rs []Record) []Record { rs[i].PersistedAt += 2; return rs })
		return true
	}},
	{"an event is another than was acknowledged as new", AckedIsStored, false, func(b *bench) bool {
		i := lastOf(b.finals[0].Records, b.acked)
		b.everywhere(func(rs []Record) []Record { rs[max(i, 0)].Content[0] ^= 1; return rs })
		return i >= 0
	}},
	{"an event is stored twice", OnePerKey, true, func(b *bench) bool { return b.again(b.acked) }},
	{"an append without an answer is stored twice", OnePerKey, true, func(b *bench) bool {
		return b.again(func(r *Record) bool { return !b.acked(r) })
	}},
	{"an event was not sent by any client", OnePerKey, true, func(b *bench) bool {
		return b.addBehind(func(r *Record) { r.Key, r.EventID = "invented", "invented" })
	}},
	{"an event has another content than was sent", OnePerKey, false, func(b *bench) bool {
		i := lastOf(b.finals[0].Records, func(r *Record) bool { return !b.acked(r) })
		b.everywhere(func(rs []Record) []Record { rs[max(i, 0)].Content[0] ^= 1; return rs })
		return i >= 0
	}},
	{"an append is stored that was refused", OnePerKey, true, func(b *bench) bool {
		// One that was sent once.
		a := b.storedUnknown(func(a *Append) bool {
			sent := 0
			for i := range b.history.Ops {
				for _, other := range b.history.Ops[i].Appends {
					if other.Run == a.Run && slices.ContainsFunc(other.Events, func(e Event) bool { return e.Key == a.Events[0].Key }) {
						sent++
					}
				}
			}
			return sent == 1
		})
		if a == nil {
			return false
		}
		a.Outcome = Failed("OVERLOADED")
		return true
	}},
	{"half of an append is stored", Linearizable, true, func(b *bench) bool {
		i := lastOf(b.finals[0].Records, func(r *Record) bool {
			return !b.acked(r) && b.storedUnknown(func(a *Append) bool {
				n := len(a.Events)
				return n > 1 && a.Run == r.Run && a.Events[n-1].Key == r.Key && a.Events[0].Key != r.Key && a.Events[0].EventID != ""
			}) != nil
		})
		b.everywhere(func(rs []Record) []Record { return slices.Delete(rs, max(i, 0), i+1) })
		return i >= 0
	}},
	{"an append without an answer went where it was not to go", Linearizable, true, func(b *bench) bool {
		a := b.storedUnknown(func(a *Append) bool { return a.Expected != nil && b.alone(a) })
		if a == nil {
			return false
		}
		*a.Expected += 3
		return true
	}},
	{"an append without an answer has two stamps", Stamped, false, func(b *bench) bool {
		a := b.storedUnknown(func(a *Append) bool {
			return len(a.Events) > 1 && b.alone(a) && a.Events[1].Key != a.Events[0].Key
		})
		if a == nil {
			return false
		}
		b.everywhere(func(rs []Record) []Record {
			i := slices.IndexFunc(rs, func(r Record) bool { return r.Run == a.Run && r.Key == a.Events[1].Key })
			for k := range rs[i:] {
				rs[i+k].PersistedAt, rs[i+k].Position = rs[i+k].PersistedAt+1, rs[i+k].Position+1
			}
			return rs
		})
		return true
	}},
	{"a runSeq is left out", Numbered, false, func(b *bench) bool {
		b.everywhere(func(rs []Record) []Record { rs[len(rs)-1].RunSeq++; return rs })
		return true
	}},
	{"runSeqs are out of order", Numbered, false, func(b *bench) bool {
		b.everywhere(func(rs []Record) []Record {
			i := len(rs) - 1
			k := slices.IndexFunc(rs, func(r Record) bool { return r.Run == rs[i].Run })
			rs[i].RunSeq, rs[k].RunSeq = rs[k].RunSeq, rs[i].RunSeq
			return rs
		})
		return b.record(b.finals[0].Records[0].Run, 2) != nil
	}},
	{"two proposals have one stamp", Stamped, false, func(b *bench) bool {
		i := b.boundary()
		b.everywhere(func(rs []Record) []Record {
			for k := i; k < len(rs) && rs[k].Position == rs[i].Position; k++ {
				rs[k].PersistedAt = rs[i-1].PersistedAt
			}
			return rs
		})
		return true
	}},
	{"one proposal has two stamps", Stamped, false, func(b *bench) bool {
		i := slices.IndexFunc(b.finals[0].Records[1:], func(r Record) bool {
			before := b.record(r.Run, r.RunSeq-1)
			return before != nil && before.Position == r.Position
		})
		b.everywhere(func(rs []Record) []Record {
			for k := i + 1; k < len(rs); k++ {
				rs[k].PersistedAt++
			}
			return rs
		})
		return i >= 0
	}},
	{"stamps go back", Stamped, false, func(b *bench) bool {
		i := b.boundary()
		b.everywhere(func(rs []Record) []Record { rs[i].PersistedAt = rs[i-1].PersistedAt - 1; return rs })
		return true
	}},
	{"stamps go back, where positions are not known", Stamped, false, func(b *bench) bool {
		i := b.boundary()
		b.everywhere(func(rs []Record) []Record {
			for k := range rs {
				rs[k].Position = 0
			}
			rs[i].PersistedAt = rs[i-1].PersistedAt - 1
			return rs
		})
		return true
	}},
	{"positions go back", Stamped, false, func(b *bench) bool {
		i := b.boundary()
		b.everywhere(func(rs []Record) []Record { rs[i].Position = rs[i-1].Position - 1; return rs })
		return true
	}},
	{"a chain is broken", Chained, false, func(b *bench) bool {
		i := b.rand.IntN(len(b.finals[0].Records))
		for _, f := range b.finals {
			f.Records[i].ChainDigest[5] ^= 1
		}
		return true
	}},
	{"a record was changed and its chain was not", Chained, false, func(b *bench) bool {
		i := b.rand.IntN(len(b.finals[0].Records))
		for _, f := range b.finals {
			f.Records[i].RecordDigest[5] ^= 1
		}
		return true
	}},
}

// boundary returns where the second or a later proposal begins.
func (b *bench) boundary() int {
	rs := b.finals[0].Records
	for _, i := range b.rand.Perm(len(rs) - 1) {
		if rs[i].Position != rs[i+1].Position {
			return i + 1
		}
	}
	return 1
}

// again stores a record of the last one's run a second time.
func (b *bench) again(fits func(*Record) bool) bool {
	rs := b.finals[0].Records
	i := slices.IndexFunc(rs, func(r Record) bool { return r.Run == rs[len(rs)-1].Run && fits(&r) })
	return i >= 0 && b.addBehind(func(r *Record) {
		behind := *r
		*r = rs[i]
		r.RunSeq, r.Position, r.PersistedAt = behind.RunSeq, behind.Position, behind.PersistedAt
	})
}

func (b *bench) lastSeq(run string) uint64 { return uint64(len(b.runs[run].records)) }

// addBehind appends a record to the last one's run.
func (b *bench) addBehind(change func(*Record)) bool {
	added := b.finals[0].Records[len(b.finals[0].Records)-1]
	added.RunSeq++
	added.Position++
	added.PersistedAt += 100_000
	change(&added)
	b.everywhere(func(rs []Record) []Record { return append(rs, added) })
	return true
}

// storedUnknown returns an append without an answer whose first event is in the log by it.
func (b *bench) storedUnknown(fits func(*Append) bool) (found *Append) {
	b.pick(func(op *Op) bool {
		for k := range op.Appends {
			a := &op.Appends[k]
			if a.Status != Unknown || !fits(a) {
				continue
			}
			for _, r := range b.finals[0].Records {
				e := &a.Events[0]
				if r.Run == a.Run && r.Key == e.Key && r.Content == e.Content && (e.EventID == "" || e.EventID == r.EventID) && !b.acked(&r) {
					found = a
					return true
				}
			}
		}
		return false
	})
	return found
}

// alone reports whether no other append has the same events.
func (b *bench) alone(a *Append) bool {
	for i := range b.history.Ops {
		for k := range b.history.Ops[i].Appends {
			other := &b.history.Ops[i].Appends[k]
			if other != a && other.Run == a.Run && slices.ContainsFunc(other.Events, func(e Event) bool { return e.Key == a.Events[0].Key }) {
				return false
			}
		}
	}
	return true
}

// nodeMutants are mistakes of one node.
var nodeMutants = []mutant{
	{"an acknowledged event is missing from one node", AckedIsStored, true, func(b *bench) bool {
		i := lastOf(b.finals[1].Records, b.acked)
		b.finals[1].Records = slices.Delete(b.finals[1].Records, max(i, 0), i+1)
		return i >= 0
	}},
	{"an event without an answer is missing from one node", Numbered, true, func(b *bench) bool {
		i := lastOf(b.finals[1].Records, func(r *Record) bool { return !b.acked(r) })
		b.finals[1].Records = slices.Delete(b.finals[1].Records, max(i, 0), i+1)
		return i >= 0
	}},
	{"a run is missing from one node", Numbered, true, func(b *bench) bool {
		run := b.finals[2].Records[0].Run
		b.finals[2].Records = slices.DeleteFunc(b.finals[2].Records, func(r Record) bool { return r.Run == run })
		return true
	}},
	{"one node has another event", Numbered, true, func(b *bench) bool {
		i := b.rand.IntN(len(b.finals[1].Records))
		b.finals[1].Records[i].EventID, b.finals[1].Records[i].Key = "other", "other"
		return true
	}},
	{"one node has another key", Numbered, true, func(b *bench) bool {
		b.finals[1].Records[b.rand.IntN(len(b.finals[1].Records))].Key = "other"
		return true
	}},
	{"one node has an event of one run for one of another", Numbered, true, func(b *bench) bool {
		rs := b.finals[1].Records
		last := len(rs) - 1
		for _, run := range sortedKeys(b.runs) {
			if run != rs[last].Run {
				rs[last].Run, rs[last].RunSeq = run, b.lastSeq(run)+1
			}
		}
		return true
	}},
	{"one node has another id", Numbered, true, func(b *bench) bool {
		b.finals[0].Records[b.rand.IntN(len(b.finals[0].Records))].EventID = "other"
		return true
	}},
	{"one node has another record", Numbered, false, func(b *bench) bool {
		i := b.rand.IntN(len(b.finals[2].Records))
		b.finals[2].Records[i].RecordDigest[0] ^= 1
		b.rechain(b.finals[2])
		return true
	}},
	{"one node has another stamp", Stamped, true, func(b *bench) bool {
		rs := b.finals[2].Records
		rs[len(rs)-1].PersistedAt += 7
		b.rechain(b.finals[2])
		return true
	}},
	{"one node has another position", Stamped, false, func(b *bench) bool {
		rs := b.finals[2].Records
		rs[len(rs)-1].Position += 7
		return rs[len(rs)-2].Position != rs[len(rs)-1].Position-7
	}},
	{"one node has another commit order", Numbered, false, func(b *bench) bool {
		rs := b.finals[1].Records
		// The first of the other run, to the front.
		i := slices.IndexFunc(rs[1:], func(r Record) bool { return r.Run != rs[0].Run })
		if i < 0 || rs[i+1].Position != rs[i].Position {
			return false
		}
		rs[i], rs[i+1] = rs[i+1], rs[i]
		return true
	}},
	{"one node has another rolling hash", HashesAgree, false, func(b *bench) bool {
		h := b.finals[0].Hashes[0]
		h.Hash[0] ^= 1
		b.finals[2].Hashes = append(b.finals[2].Hashes, h)
		return true
	}},
	{"one node had another tree of records", Rooted, false, func(b *bench) bool {
		trees := b.finals[1].Trees
		if len(trees) == 0 {
			return false
		}
		trees[len(trees)/2].Root[3] ^= 1
		return true
	}},
	{"a leaf is missing from the tree of one node", Rooted, false, func(b *bench) bool {
		f := b.finals[2]
		if len(f.Trees) == 0 || f.Trees[len(f.Trees)-1].Size < 2 {
			return false
		}
		f.Trees[len(f.Trees)-1].Size--
		return true
	}},
	{"one node goes back to another rolling hash", HashesAgree, false, func(b *bench) bool {
		h := b.finals[0].Hashes[0]
		h.Hash[0] ^= 1
		b.finals[0].Hashes = append(b.finals[0].Hashes, h)
		return true
	}},
}

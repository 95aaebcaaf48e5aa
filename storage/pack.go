package storage

import (
	"bytes"
	"errors"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"runlog/storage/internal/keys"
	"runlog/storage/internal/record"
)

// A proposal packs for as long as it has work left. A receipt that is packed costs 1, one that is
// in the row already a quarter, and a run packJob. So a run that ends costs at most packJob+1 for
// each of its events, and late events cost at most 4 each. eventWork for each new event of the
// proposal keeps up with whatever comes, and leastWork makes up for what large runs have left: it
// is more than one step costs, so that other runs have their turn.
const (
	packJob   = 8
	eventWork = 16
	leastWork = 1024
	// packStep receipts of one run are packed in a proposal.
	packStep = 512
)

// packing are the runs that are to be packed, in the order in which they ended. Invariant: between
// two proposals, the database has the same. Only the goroutine that applies uses it.
type packing struct {
	jobs []job
	runs map[uint64]struct{} // numbers of the runs in jobs; nil: not read from the database yet
}

type job struct {
	position Position // of the proposal that left it; with n, its key
	n        uint32
	record.Packing
	run *run // of this proposal's new jobs
}

// packer is memory of pack.
type packer struct {
	plain  []record.KeyedReceipt
	packed []record.PackedReceipt // of the row that is written again
	merged []record.PackedReceipt
	// waiting are the receipts of the proposal, of runs to be packed, by number.
	waiting map[uint64][]record.KeyedReceipt
}

// load reads the runs that are to be packed, if they were not yet.
func (p *packing) load(db pebble.Reader) (err error) {
	if p.runs != nil {
		return nil
	}
	p.runs = map[uint64]struct{}{}
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: keys.PackingStart, UpperBound: keys.PackingEnd})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for it.First(); it.Valid(); it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		j := job{}
		if j.position, j.n, err = record.ParsePackingKey(it.Key()); err != nil {
			return err
		}
		if j.Packing, err = record.ParsePacking(value); err != nil {
			return err
		}
		p.add(j)
	}
	return it.Error()
}

func (p *packing) add(j job) {
	p.jobs = append(p.jobs, j)
	p.runs[j.Run.No] = struct{}{}
}

// drop drops the jobs from one index up to another. There may be very many behind them.
func (p *packing) drop(from, to int) {
	if to == len(p.jobs) {
		p.jobs = slices.Delete(p.jobs, from, to)
		return
	}
	copy(p.jobs[to-from:], p.jobs[:from])
	p.jobs = p.jobs[to-from:]
}

// pack packs receipts of runs that have ended (LIFE-9), as far as the work of one proposal goes.
// Each run that waits gets one step, in their order. So a large run holds up neither the proposal
// nor the runs behind it.
func (a *applyTx) pack() error {
	q := &a.s.packing
	if err := q.load(a.rows.Reader); err != nil {
		return err
	}
	first := len(q.jobs)
	for _, r := range a.touched {
		if !r.head.PackingDue() {
			continue
		}
		if _, waits := q.runs[r.ref.No]; !waits {
			q.add(job{a.position, uint32(len(q.jobs) - first), record.Packing{Run: r.ref}, r})
		}
	}
	if len(q.jobs) == 0 {
		return nil
	}
	a.packer.gather(&a.pending, q.runs)
	work := leastWork + eventWork*int(a.events-a.previous.Events)
	done, left := 0, 0 // jobs; those left of the first ones are moved to the front
	for ; done < len(q.jobs) && work > 0; done++ {
		j := &q.jobs[done]
		all, cost, err := a.packRun(j)
		if err != nil {
			return err
		}
		work -= packJob + cost
		if !all {
			if err := a.setJob(j); err != nil {
				return err
			}
			q.jobs[left] = *j
			left++
			continue
		}
		delete(q.runs, j.Run.No)
		if done < first {
			if err := a.batch.Delete(keys.AppendPacking(nil, uint64(j.position), j.n), nil); err != nil {
				return err
			}
		}
	}
	for i := max(first, done); i < len(q.jobs); i++ {
		if err := a.setJob(&q.jobs[i]); err != nil {
			return err
		}
	}
	q.drop(left, done)
	return nil
}

func (a *applyTx) setJob(j *job) error {
	j.run = nil
	a.row = keys.AppendPacking(a.row[:0], uint64(j.position), j.n)
	split := len(a.row)
	a.row = j.Append(a.row)
	return a.setRow(split)
}

// gather takes the receipts of a proposal whose runs are to be packed, in the order of their keys.
func (p *packer) gather(pending *pendingReceipts, runs map[uint64]struct{}) {
	clear(p.waiting)
	if p.waiting == nil {
		p.waiting = map[uint64][]record.KeyedReceipt{}
	}
	for i := range pending.list {
		r := &pending.list[i]
		if _, ok := runs[r.run]; ok {
			p.waiting[r.run] = append(p.waiting[r.run], record.KeyedReceipt{Key: r.key, Receipt: r.Receipt})
		}
	}
	for _, list := range p.waiting {
		slices.SortFunc(list, func(x, y record.KeyedReceipt) int { return bytes.Compare(x.Key[:], y.Key[:]) })
	}
}

// packRun makes a step with a run: of its receipts that are not packed, it packs those that come
// next, into the row that is for their prefixes. all: nothing is left. cost is its work.
func (a *applyTx) packRun(j *job) (all bool, cost int, err error) {
	r := j.run
	if r == nil {
		if r, err = a.runOf(j.Run); err != nil {
			return false, 0, err
		}
	}
	var row record.PackedRow // of none
	if r.head.Packed > 0 {
		if row, err = a.rows.PackedAt(r.ref, j.From); err != nil {
			return false, 0, err
		}
	}
	plain, err := a.plainFrom(r.ref, j.From, row.Next)
	if err != nil {
		return false, 0, err
	}
	j.From = row.Next
	if len(plain) == packStep {
		last := plain[len(plain)-1].Key.Prefix()
		j.From = last.Next()
	}
	if len(plain) > 0 {
		cost, err = a.packInto(r, &row, plain)
	}
	// Many may have come meanwhile, for rows that were behind the step.
	all = j.From == record.KeyPrefix{} && !r.head.PackingDue()
	return all, len(plain) + cost, err
}

// packInto packs receipts into a row, which is written again, as several if it gets too long; or
// into new rows behind it, if it would get too long and all of them belong there. cost is what the
// receipts in the row cost.
func (a *applyTx) packInto(r *run, row *record.PackedRow, plain []record.KeyedReceipt) (cost int, err error) {
	old, key := a.packer.packed[:0], keys.AppendPacked(nil, r.ref)
	if row.Key != nil {
		last := row.Last()
		if row.Len()+len(plain) > record.MaxPacked && bytes.Compare(last[:], plain[0].Key[:len(last)]) < 0 {
			key = keys.AppendPackedFrom(nil, r.ref, plain[0].Key.Prefix())
		} else {
			key = row.Key
			if old, err = row.All(old); err != nil {
				return 0, err
			}
		}
	}
	a.packer.packed = old
	return len(old) / 4, a.packRow(r, key, old, plain)
}

// plainFrom returns at most packStep receipts of a run that are not packed, in the order of their
// keys, from one prefix up to another; zero: up to the last.
func (a *applyTx) plainFrom(run record.RunRef, from, to record.KeyPrefix) ([]record.KeyedReceipt, error) {
	waiting := a.packer.waiting[run.No]
	for len(waiting) > 0 && bytes.Compare(waiting[0].Key[:len(from)], from[:]) < 0 {
		waiting = waiting[1:]
	}
	before := func(k *record.KeyHash) bool {
		return to == record.KeyPrefix{} || bytes.Compare(k[:len(to)], to[:]) < 0
	}
	list := a.packer.plain[:0]
	take := func(until *record.KeyHash) {
		for len(waiting) > 0 && len(list) < packStep && before(&waiting[0].Key) &&
			(until == nil || bytes.Compare(waiting[0].Key[:], until[:]) < 0) {
			list, waiting = append(list, waiting[0]), waiting[1:]
		}
	}
	err := a.rows.PlainReceipts(run, from, func(key *record.KeyHash, row []byte) (bool, error) {
		take(key)
		if len(list) == packStep || !before(key) {
			return false, nil
		}
		rc, err := record.ParseReceipt(row)
		list = append(list, record.KeyedReceipt{Key: *key, Receipt: rc})
		return true, err
	})
	take(nil)
	a.packer.plain = list
	return list, err
}

// packRow writes packed receipts and more that were not packed, from the row of a key on, and
// deletes the rows of the latter.
func (a *applyTx) packRow(r *run, key []byte, packed []record.PackedReceipt, plain []record.KeyedReceipt) error {
	var row []byte
	merged, err := record.Merge(a.packer.merged[:0], packed, plain, func(rc *record.KeyedReceipt) error {
		row = keys.AppendReceipt(row[:0], r.ref, rc.Key[:])
		r.head.Packed++
		r.head.Plain--
		// A receipt is written once: what covers it need not get to the last level.
		return a.batch.SingleDelete(row, nil)
	})
	a.packer.merged = merged
	if err != nil {
		return err
	}
	a.touch(r)
	return record.PackedRows(r.ref, key, merged, func(key, row []byte) error { return a.batch.Set(key, row, nil) })
}

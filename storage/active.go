package storage

import (
	"container/list"
	"slices"

	"google.golang.org/protobuf/proto"

	recordv1 "runlog/proto/record/v1"
	"runlog/storage/internal/record"
)

// run is what apply keeps in memory of an active run.
type run struct {
	ref      record.RunRef
	identity *recordv1.RunIdentity
	tenant   record.TenantHash
	head     record.Head
	metadata *recordv1.RunMetadata // nil: none
	// receipts has the prefix of every receipt of the run: a key that is not in it is new without a
	// look at the disk; one that is in it is looked up and compared in full. nil: the run has too
	// many, or was asked about too few keys yet, or memory is short, and every key is looked up.
	receipts map[record.KeyPrefix]struct{}
	asked    int // keys that were looked up because receipts is nil
	// touched says that the proposal being applied changed the run.
	touched bool
	// marked says that the proposal made the run or changed its metadata.
	marked bool

	bytes int
	lru   *list.Element
}

// Rough costs in memory of a run, without its texts, and of one receipt in a map.
const (
	runBytes     = 512
	receiptBytes = 48
)

const (
	// maxIndexed receipts of a run are kept in memory: to load more would hold up every append
	// behind it.
	maxIndexed = 16 << 10
	// indexAfter keys, and as many as one in indexShare of the run's receipts, are looked up one by
	// one before the receipts are loaded. Most looks end at a bloom filter and cost as much as some
	// tens of loaded receipts.
	indexAfter = 4
	indexShare = 16
)

// size is about what the run takes in memory.
func (r *run) size() int {
	return runBytes + proto.Size(r.identity) + proto.Size(r.metadata) + receiptBytes*len(r.receipts)
}

// unindexed tells whether only the disk knows which keys the run has.
func (r *run) unindexed() bool { return r.receipts == nil }

// active holds the runs that were appended to most recently, complete with their receipts and
// bounded by bytes (D6, D12). Only apply uses it.
type active struct {
	runs  map[string]*run
	order *list.List // of *run, most recent first
	bytes int
	limit int
}

func newActive(limit int) *active {
	return &active{runs: map[string]*run{}, order: list.New(), limit: limit}
}

func (a *active) get(runID []byte) *run {
	r := a.runs[string(runID)]
	if r != nil {
		a.order.MoveToFront(r.lru)
	}
	return r
}

func (a *active) add(r *run) {
	r.lru = a.order.PushFront(r)
	a.runs[r.identity.RunId] = r
	a.resize(r)
	a.shrink()
}

// resize counts a run again, after it has changed.
func (a *active) resize(r *run) {
	a.bytes -= r.bytes
	r.bytes = r.size()
	a.bytes += r.bytes
}

func (a *active) addReceipt(r *run, p record.KeyPrefix) {
	if r.unindexed() {
		return
	}
	if len(r.receipts) == maxIndexed {
		a.unindex(r)
		return
	}
	r.receipts[p] = struct{}{}
	r.bytes += receiptBytes
	a.bytes += receiptBytes
}

// index takes over the receipts of a run.
func (a *active) index(r *run, receipts map[record.KeyPrefix]struct{}) {
	r.receipts = receipts
	a.resize(r)
}

func (a *active) unindex(r *run) {
	r.asked = 0
	a.bytes -= receiptBytes * len(r.receipts)
	r.bytes -= receiptBytes * len(r.receipts)
	r.receipts = nil
}

// remove forgets a run that does not exist after all.
func (a *active) remove(r *run) {
	a.order.Remove(r.lru)
	delete(a.runs, r.identity.RunId)
	a.bytes -= r.bytes
}

// shrink drops the runs that were idle longest until the rest fits. Of runs that the proposal
// being applied has changed, and of the most recent one, it drops the receipts alone: the heads
// are not on disk yet.
func (a *active) shrink() {
	for e := a.order.Back(); e != nil && a.bytes > a.limit; {
		r := e.Value.(*run)
		previous := e.Prev()
		switch {
		case !r.touched && previous != nil:
			a.remove(r)
		case previous != nil || a.bytes > 2*a.limit:
			a.unindex(r)
		}
		e = previous
	}
}

// pendingReceipts are those that a proposal writes: Pebble does not show them yet. Nearly no
// proposal asks for one, so they are sorted into a map only when the first is asked for.
type pendingReceipts struct {
	list []pendingReceipt
	byID map[pendingKey]*record.Receipt
}

type pendingReceipt struct {
	pendingKey
	record.Receipt
}

type pendingKey struct {
	run uint64
	key record.KeyHash
}

func (p *pendingReceipts) add(run uint64, key *record.KeyHash, rc *record.Receipt) {
	p.list = append(p.list, pendingReceipt{pendingKey{run, *key}, *rc})
}

// of yields the keys of a run.
func (p *pendingReceipts) of(run uint64, yield func(*record.KeyHash)) {
	for i := range p.list {
		if p.list[i].run == run {
			yield(&p.list[i].key)
		}
	}
}

// has tells whether a receipt of a run was added since there were n.
func (p *pendingReceipts) has(n int, run uint64) bool {
	return slices.ContainsFunc(p.list[n:], func(r pendingReceipt) bool { return r.run == run })
}

// truncate forgets all but the first n.
func (p *pendingReceipts) truncate(n int) {
	for i := n; i < len(p.list); i++ {
		delete(p.byID, p.list[i].pendingKey) // it may not be there yet
	}
	p.list = p.list[:n]
}

func (p *pendingReceipts) find(run uint64, key *record.KeyHash) (record.Receipt, bool) {
	if p.byID == nil {
		p.byID = make(map[pendingKey]*record.Receipt, len(p.list))
	}
	for i := len(p.byID); i < len(p.list); i++ {
		p.byID[p.list[i].pendingKey] = &p.list[i].Receipt
	}
	rc, ok := p.byID[pendingKey{run, *key}]
	if !ok {
		return record.Receipt{}, false
	}
	return *rc, true
}

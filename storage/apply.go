package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"runlog/proto/contract"
	"runlog/storage/internal/keys"
	"runlog/storage/internal/overlay"
	"runlog/storage/internal/record"
)

var errStamps = errors.New("storage: the last stamp that a proposal can have was given")

// Apply applies the log entry at index: every command of the proposal in order, all in one batch
// with the applied state. An entry at or below the applied index is skipped and gives no outcomes.
//
// It returns when readers see the effects, not when they are durable (MakeDurable): the entry
// itself is on stable storage of a majority, and is applied again after a crash.
//
// An error means that this node must stop (D10). Memory may then be ahead of the disk, so every
// later call returns the same error.
func (s *Store) Apply(index, term uint64, data []byte) ([]Outcome, error) {
	if s.broken != nil {
		return nil, s.broken
	}
	if applied := s.applied.Load(); index <= applied.Index {
		return nil, nil
	}
	outcomes, err := s.apply(index, term, data)
	if err != nil {
		s.broken = fmt.Errorf("entry %d: %w", index, err)
		return nil, s.broken
	}
	return outcomes, nil
}

func (s *Store) apply(index, term uint64, data []byte) ([]Outcome, error) {
	e, err := record.ParseProposal(data)
	if err != nil {
		return nil, err
	}
	if e.Cluster != s.opts.Cluster || e.Partition != 0 {
		return nil, fmt.Errorf("%w %x, partition %d", ErrForeign, e.Cluster, e.Partition)
	}
	a, err := s.beginApply(Position(index), e.Clock)
	if err != nil {
		return nil, err
	}
	defer a.end()
	outcomes := make([]Outcome, 0, e.Count)
	for range e.Count {
		cmd, err := e.Next()
		if err != nil {
			return nil, err
		}
		o, err := a.command(cmd)
		if err != nil {
			return nil, err
		}
		outcomes = append(outcomes, o)
	}
	if err := e.End(); err != nil {
		return nil, err
	}
	return outcomes, a.commit(index, term, e.CRC)
}

// maxChunkScratch is what one large payload may leave behind.
const maxChunkScratch = 1 << 20

// applyTx is one proposal while it is applied. The store has one, and uses its memory again.
//
//	beginApply   the stamp, and an empty batch
//	command      for each command: first all checks, which change nothing, then the writes
//	commit       heads, the last chunk, rows of machines, the stamp and the applied state
//	show         the batch becomes visible, as a whole
//	publish      Applied says so, and wakes the readers that wait
//
// The database shows nothing of a proposal before show. What a later command of the same proposal
// must see of an earlier one is in memory: the heads in the active runs, their new receipts in
// pending, the rows of machines in writes. The rest goes into the batch as it comes.
//
// A refused command changes nothing. A single append is refused before its first write; what its
// classification has noted in writes is rolled back. A compound command may be refused after
// writes, see undo. An error is another matter: it says that this replica cannot apply what the
// others may have applied, so it leaves everything as it is, half done, and stops the node (D10).
//
// All fields are of one proposal, from beginApply to end, and only the goroutine that applies uses
// them.
type applyTx struct {
	s        *Store
	batch    *pebble.Batch // of the proposal; while a compound command is applied, of that command
	position Position
	stamp    int64
	previous *Applied    // before the proposal
	rows     record.Rows // as the database shows them: from before the proposal

	// What the applied state will say. It begins with that of previous.

	nextRun     uint64
	events      uint64
	level       uint32
	incarnation Incarnation
	fencesAbove uint64
	held        bool
	receiptKey  record.ReceiptKey

	touched []*run          // whose heads commit writes, in the order of their first change
	pending pendingReceipts // that are in the batch
	packer  packer          // memory of pack
	writes  overlay.Overlay // rows of machines and of the level
	effects []byte          // on the heads, for the rolling hash
	// chain has the chain digests of the records, in commit order.
	chain []contract.Digest

	// The open chunk, which appendBlock fills and flushChunk writes.

	chunk       []byte
	chunkNo     uint32 // of those of the proposal, from 0
	chunkBlocks uint32
	records     uint32         // in the blocks so far
	tenants     record.Tenants // which blocks have events of which tenants

	// Memory of the command being applied, and scratch.

	cmd  record.AppendCommand
	ops  []record.ParsedOperation // of a compound command
	undo undo                     // of it
	row  []byte                   // for keys and rows
}

// beginApply begins a proposal. Its stamp is the leader's clock, but above every earlier stamp
// (APP-5, D7).
func (s *Store) beginApply(position Position, clock int64) (*applyTx, error) {
	prev := s.applied.Load()
	if prev.PersistedAt == math.MaxInt64 {
		return nil, errStamps
	}
	a := &s.application
	*a = applyTx{
		s:        s,
		batch:    s.db().NewBatch(),
		position: position,
		stamp:    max(prev.PersistedAt+1, clock),
		previous: prev,
		nextRun:  prev.NextRun,
		events:   prev.Events,
		rows:     record.Rows{Reader: s.db()},
		level:    s.Level(),

		incarnation: prev.Incarnation, fencesAbove: prev.FencesAbove, held: prev.Held, receiptKey: prev.ReceiptKey,

		touched: a.touched[:0],
		pending: pendingReceipts{list: a.pending.list[:0]},
		packer:  a.packer,
		cmd:     a.cmd,
		ops:     a.ops[:0],
		undo:    a.undo,
		writes:  a.writes,
		chunk:   a.chunk[:0],
		effects: a.effects[:0],
		chain:   a.chain[:0],
		row:     a.row,
		tenants: a.tenants,
	}
	a.tenants.Reset()
	return a, nil
}

// end releases what applyTx must not hold on to.
func (a *applyTx) end() {
	a.undo.close(a)
	_ = a.batch.Close()
	_ = a.rows.Close() // its errors came with its rows
	a.batch = nil
	clear(a.touched)
	a.cmd.Forget()
	clear(a.ops)
	a.writes.Reset()
	if cap(a.chunk) > maxChunkScratch {
		a.chunk = nil
	}
}

// command applies one command: an append alone, or a compound of several operations.
func (a *applyTx) command(data []byte) (Outcome, error) {
	ops, err := record.ParseCommand(data, &a.cmd, a.ops[:0])
	a.ops = ops
	if err != nil {
		return Outcome{}, fmt.Errorf("%w: %w", record.ErrCommand, err)
	}
	o := Outcome{Position: a.position, PersistedAt: a.stamp}
	if len(ops) == 0 {
		err = a.append(&a.cmd, &o)
	} else {
		err = a.compound(ops, &o)
	}
	return o, err
}

// append is the life of one request inside the state machine:
//
//  1. refusal: what does not depend on the events, such as the scope.
//  2. decide: duplicates, runSeq values and conditions. If it refuses, the rows of attempts that it
//     has written are rolled back.
//  3. createRun or adoptMetadata, then store: nothing can be refused any more.
//  4. notice, then setStatuses: machines learn of the events, and of the end of the run.
//
// The order of the checks is a part of the contract: of several reasons, the caller gets the first.
func (a *applyTx) append(m *record.AppendCommand, o *Outcome) error {
	if len(m.Headers)%record.HeaderSize != 0 {
		return fmt.Errorf("%w: %d bytes of headers", record.ErrCommand, len(m.Headers))
	}
	var err error
	if a.receiptKey, err = m.KeyFor(a.receiptKey); err != nil {
		return err
	}
	a.s.keyer.Use(a.receiptKey)
	r, err := a.activeRun(m.RunID)
	if err != nil {
		return err
	}
	created := r == nil
	if !created {
		o.LastSeq = r.head.LastSeq
	}
	if o.refuse(refusal(r, m)) {
		return nil
	}
	if created {
		r = a.newRun(m)
	}
	before := a.writes.Mark()
	fresh, why, err := a.decide(r, m, created, o)
	if err != nil {
		return err
	}
	if o.refuse(why) {
		a.writes.Rollback(before)
		o.Results = nil
		return nil
	}
	if created || fresh > 0 {
		a.undo.save(r, created)
	}
	switch {
	case created:
		o.Created = true
		err = a.createRun(r, m.Create)
	case m.Create != nil:
		err = a.adoptMetadata(r, m.Create)
	}
	if err != nil {
		return err
	}
	if err := a.store(r, m, o.Results); err != nil {
		return err
	}
	o.LastSeq = r.head.LastSeq
	isNew := func(i int) bool { return i < len(o.Results) && !o.Results[i].Duplicate }
	if err := a.notice(r, m, isNew); err != nil {
		return err
	}
	if len(m.Changes) > 0 {
		if err := a.setStatuses(r, m.Changes.After(r.head.Statuses, isNew)); err != nil {
			return err
		}
	}
	o.Ended = r.head.Statuses.Ended()
	return nil
}

// decide sets the results of a request, and returns how many of its events are new, or why the
// request cannot be stored. created: the request makes the run.
func (a *applyTx) decide(r *run, m *record.AppendCommand, created bool, o *Outcome) (fresh int, why, err error) {
	fresh, why, err = a.classify(r, m, o)
	if why != nil || err != nil {
		return 0, why, err
	}
	if m.Imports() {
		if why, err = a.assign(r, m, o.Results); why != nil || err != nil {
			return 0, why, err
		}
	}
	if m.Create != nil && !created {
		if why = refuseNewEvent(r, o.Results); why != nil {
			return 0, why, nil
		}
	}
	return fresh, unmet(r, m, created || fresh > 0, o.Results), nil
}

// store writes what classify found to be new. results are those of the request, in its order.
func (a *applyTx) store(r *run, m *record.AppendCommand, results []EventResult) error {
	next := 0
	for i := range m.Blocks {
		b := &m.Blocks[i]
		if next+int(b.Count) > len(results) {
			return fmt.Errorf("%w: more bodies than headers", record.ErrCommand)
		}
		if err := a.storeBlock(r, m, b, next, results[next:next+int(b.Count)]); err != nil {
			return err
		}
		next += int(b.Count)
	}
	if next != len(results) {
		return fmt.Errorf("%w: %d bodies for %d headers", record.ErrCommand, next, len(results))
	}
	return nil
}

// storeBlock stores the new events of one body. The body stays compressed as it came: its
// duplicates are in the block too, listed as dead.
func (a *applyTx) storeBlock(r *run, m *record.AppendCommand, b *record.Bodies, first int,
	results []EventResult) error {
	out := record.Block{
		Run: r.ref, Count: uint64(b.Count), Prev: r.head.Chain,
		Codec: byte(b.Codec), RawSize: uint64(b.RawSize), Data: b.Data,
	}
	if !m.Plan.Is(r.identity.Plan) {
		out.Plan = m.Plan.Message()
	}
	for i := range results {
		res := &results[i]
		if res.Duplicate {
			out.Dead = append(out.Dead, uint32(i))
			continue
		}
		if out.FirstSeq == 0 {
			out.FirstSeq = res.RunSeq
		}
		h := record.ParseHeader(m.Headers[(first+i)*record.HeaderSize:])
		if err := a.storeEvent(r, &h, res, m.Fingerprint(first+i, &h, &a.s.keyer)); err != nil {
			return err
		}
	}
	if len(out.Dead) == len(results) {
		return nil
	}
	a.touch(r)
	if a.undo.on {
		a.undo.blocks = append(a.undo.blocks, waitingBlock{out, r.tenant})
		return nil
	}
	a.tenants.Add(r.tenant, a.chunkNo, a.chunkBlocks)
	return a.appendBlock(&out)
}

// storeEvent advances the run's head by one event and writes its receipt.
func (a *applyTx) storeEvent(r *run, h *record.Header, res *EventResult, s record.Fingerprint) error {
	r.head.Chain = contract.ChainDigest(r.head.Chain, h.Record, res.RunSeq, res.PersistedAt)
	r.head.LastSeq, r.head.PersistedAt, r.head.Position = res.RunSeq, res.PersistedAt, a.position
	a.chain = append(a.chain, r.head.Chain)
	a.events++
	rc := record.Receipt{
		RunSeq: res.RunSeq, PersistedAt: res.PersistedAt, EventID: h.EventID, Fingerprint: s,
	}
	r.head.Plain++
	a.pending.add(r.ref.No, &h.Key, &rc)
	a.s.active.addReceipt(r, h.Key.Prefix())
	a.row = keys.AppendReceipt(a.row[:0], r.ref, h.Key[:])
	split := len(a.row)
	a.row = rc.Append(a.row)
	return a.setRow(split)
}

// touch has commit write the head of a run.
func (a *applyTx) touch(r *run) {
	if !r.touched {
		r.touched = true
		a.touched = append(a.touched, r)
	}
}

// appendBlock puts a block into the proposal's open chunk and writes its place.
func (a *applyTx) appendBlock(b *record.Block) error {
	if len(a.chunk) == 0 {
		a.chunk = record.BeginChunk(a.chunk, a.stamp)
	}
	b.Offset = a.records
	a.records += b.Live()
	a.chunk = b.Append(a.chunk)
	if b.Count > 0 {
		p := record.Place{Position: a.position, Chunk: a.chunkNo, Block: a.chunkBlocks}
		a.row = keys.AppendPlace(a.row[:0], b.Run, b.FirstSeq)
		split := len(a.row)
		a.row = p.Append(a.row)
		if err := a.setRow(split); err != nil {
			return err
		}
	}
	a.chunkBlocks++
	if len(a.chunk) >= record.ChunkTarget {
		return a.flushChunk()
	}
	return nil
}

// flushChunk writes the open chunk, if there is one.
func (a *applyTx) flushChunk() error {
	if a.chunkBlocks == 0 {
		return nil
	}
	a.row = keys.AppendChunk(a.row[:0], uint64(a.position), a.chunkNo)
	err := a.batch.Set(a.row, a.chunk, nil)
	a.chunk, a.chunkBlocks = a.chunk[:0], 0
	a.chunkNo++
	return err
}

// commit ends the proposal. All of its rows are in one batch: heads and events of the runs that it
// has changed, rows of machines, and the store's own, which name the proposal. Then:
//
//  1. show: readers of the database see all of it.
//  2. chains, keepWrites, shrink, level: memory says what the database says.
//  3. publish: the goroutines that wait for the entry continue, and find 1 and 2 done.
//  4. tell: those that watch rows get them, and can read them.
//
// Nothing fails behind show. After an error before that, nothing of the proposal is visible, and
// the node stops.
func (a *applyTx) commit(index, term uint64, crc uint32) error {
	if err := a.pack(); err != nil {
		return err
	}
	if err := a.writeHeads(); err != nil {
		return err
	}
	if err := a.flushChunk(); err != nil {
		return err
	}
	if err := a.writeMachines(); err != nil {
		return err
	}
	next, err := a.writeApplied(index, term, crc)
	if err != nil {
		return err
	}
	if err := a.show(); err != nil {
		return err
	}
	a.s.chains.put(a.position, a.chain)
	a.keepWrites()
	a.s.active.shrink()
	a.s.level.Store(a.level)
	a.s.publish(next)
	a.s.rows.tell(a.writes.All())
	return nil
}

// writeHeads writes the heads of the changed runs, in the order of their first changes, and chains
// them into the rolling hash. A run that is new, or has new metadata, gets an empty block: readers
// of the log learn of it by that.
func (a *applyTx) writeHeads() error {
	for _, r := range a.touched {
		a.effects = binary.BigEndian.AppendUint64(a.effects, r.ref.No)
		a.effects = r.head.Append(a.effects)
		if r.marked {
			if err := a.appendBlock(&record.Block{Run: r.ref}); err != nil {
				return err
			}
		}
		a.row = keys.AppendHead(a.row[:0], r.ref)
		split := len(a.row)
		a.row = r.head.Append(a.row)
		if err := a.setRow(split); err != nil {
			return err
		}
		r.touched, r.marked = false, false
	}
	return nil
}

// writeMachines writes the rows of machines and of the level, and chains every write of them into
// the rolling hash.
func (a *applyTx) writeMachines() (err error) {
	a.effects = append(a.effects, a.writes.Effects()...)
	for _, r := range a.writes.All() {
		if r.Deleted {
			err = a.batch.Delete(r.Key, nil)
		} else {
			err = a.batch.Set(r.Key, r.Value, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// writeApplied writes where the tenants of the proposal are, its stamp, and the applied state, with
// the rolling hash over all effects. It returns that state.
func (a *applyTx) writeApplied(index, term uint64, crc uint32) (*Applied, error) {
	err := a.tenants.Rows(a.position, func(key, value []byte) error { return a.batch.Set(key, value, nil) })
	if err != nil {
		return nil, err
	}
	a.row = keys.AppendStamp(a.row[:0], a.stamp)
	split := len(a.row)
	a.row = binary.BigEndian.AppendUint64(a.row, uint64(a.position))
	if err := a.setRow(split); err != nil {
		return nil, err
	}
	next := advance(a.previous, index, term, a.stamp, a.nextRun, a.events, crc, a.effects)
	next.Incarnation, next.FencesAbove, next.Held, next.ReceiptKey = a.incarnation, a.fencesAbove, a.held, a.receiptKey
	switch {
	case !next.Held:
		next.HeldSince = 0
	case next.HeldSince == 0:
		next.HeldSince = a.stamp
	}
	row, err := record.AppliedRow(next, a.s.opts.Cluster)
	if err != nil {
		return nil, err
	}
	return next, a.batch.Set(keys.Applied, row, nil)
}

// setRow writes the row in a.row, whose key ends at split.
func (a *applyTx) setRow(split int) error { return a.batch.Set(a.row[:split], a.row[split:], nil) }

// show makes the batch visible, and notes which heads it changes. Both happen under one lock, which
// Heads takes too: a snapshot has the new heads and their names, or neither.
func (a *applyTx) show() error {
	c := &a.s.changes
	c.Lock()
	defer c.Unlock()
	for _, r := range a.touched {
		c.AddLocked(r.ref.No)
	}
	return a.s.db().Apply(a.batch, pebble.NoSync)
}

// keepWrites puts the rows of machines into the cache, which takes their values over. The database
// shows them by now.
func (a *applyTx) keepWrites() {
	for _, r := range a.writes.All() {
		if r.Deleted {
			a.s.recent.Forget(r.Key)
		} else {
			a.s.recent.Put(r.Key, r.Value)
		}
	}
}

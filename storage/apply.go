package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2"
	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	"runlog/storage/internal/keys"
	"runlog/storage/internal/overlay"
)

// ErrForeign means that a log entry, a checkpoint or the store itself belongs to another cluster
// (D1).
var ErrForeign = errors.New("storage: entry of another cluster")

var (
	errCommand = errors.New("storage: undecodable command")
	errStamps  = errors.New("storage: the last stamp that a proposal can have was given")

	deterministic = proto.MarshalOptions{Deterministic: true}
)

// Apply applies the log entry at index: every command of the proposal in order, all in one batch
// with the applied state. An entry at or below the applied index is skipped and gives no outcomes.
//
// An error means that this node cannot go on (D10). What is in memory may then be ahead of the
// disk, so that every later call gives the same error.
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
	e, err := parseProposal(data)
	if err != nil {
		return nil, err
	}
	if e.cluster != s.opts.Cluster || e.partition != 0 {
		return nil, fmt.Errorf("%w %x, partition %d", ErrForeign, e.cluster, e.partition)
	}
	a, err := s.beginApply(Position(index), e.clock)
	if err != nil {
		return nil, err
	}
	defer a.end()
	outcomes := make([]Outcome, 0, e.count)
	for range e.count {
		cmd, err := e.next()
		if err != nil {
			return nil, err
		}
		o, err := a.command(cmd)
		if err != nil {
			return nil, err
		}
		outcomes = append(outcomes, o)
	}
	if err := e.end(); err != nil {
		return nil, err
	}
	return outcomes, a.commit(index, term, e.crc)
}

// maxChunkScratch is what one large payload may leave behind.
const maxChunkScratch = 1 << 20

// applyTx is one proposal being applied. The store has one and uses its memory again.
type applyTx struct {
	s        *Store
	batch    *pebble.Batch
	position Position
	stamp    int64
	previous *Applied
	nextRun  uint64
	events   uint64

	level uint32

	touched []*run
	pending pendingReceipts
	cmd     appendCommand   // the one being applied
	ops     []operation     // of the compound command being applied
	undo    undo            // of that command
	writes  overlay.Overlay // rows of machines and of the level

	chunk       []byte
	chunkNo     uint32
	chunkBlocks uint32
	tenants     tenants
	rows        rows   // as they were before the proposal
	effects     []byte // on the heads, for the rolling hash
	row         []byte // scratch for keys and rows
}

// beginApply clamps the leader's clock to more than every earlier stamp (APP-5, D7).
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
		nextRun:  prev.nextRun,
		events:   prev.Events,
		rows:     rows{r: s.db()},
		level:    s.Level(),

		touched: a.touched[:0],
		pending: pendingReceipts{list: a.pending.list[:0]},
		cmd:     a.cmd,
		ops:     a.ops[:0],
		undo:    a.undo,
		writes:  a.writes,
		chunk:   a.chunk[:0],
		effects: a.effects[:0],
		row:     a.row,
		tenants: a.tenants,
	}
	a.tenants.reset()
	return a, nil
}

// end releases what applyTx must not hold on to.
func (a *applyTx) end() {
	a.undo.close(a)
	_ = a.batch.Close()
	_ = a.rows.close() // its errors came with its rows
	a.batch = nil
	clear(a.touched)
	a.cmd.forget()
	clear(a.ops)
	a.writes.Reset()
	if cap(a.chunk) > maxChunkScratch {
		a.chunk = nil
	}
}

func (a *applyTx) command(data []byte) (Outcome, error) {
	ops, err := parseCommand(data, &a.cmd, a.ops[:0])
	a.ops = ops
	if err != nil {
		return Outcome{}, fmt.Errorf("%w: %w", errCommand, err)
	}
	o := Outcome{Position: a.position, PersistedAt: a.stamp}
	if len(ops) == 0 {
		err = a.append(&a.cmd, &o)
	} else {
		err = a.compound(ops, &o)
	}
	return o, err
}

// append is the life of one request inside the state machine. Checks come first and change nothing;
// then nothing can be refused any more.
func (a *applyTx) append(m *appendCommand, o *Outcome) error {
	if len(m.headers)%headerSize != 0 {
		return fmt.Errorf("%w: %d bytes of headers", errCommand, len(m.headers))
	}
	r, err := a.activeRun(m.runID)
	if err != nil {
		return err
	}
	created := r == nil
	if !created {
		o.LastSeq = r.head.lastSeq
	}
	if o.refuse(refusal(r, m)) {
		return nil
	}
	if created {
		r = a.newRun(m)
	}
	fresh, err := a.classify(r, m, o)
	if err != nil {
		return err
	}
	if m.imports() {
		why, err := a.assign(r, m, o.Results)
		if err != nil {
			return err
		}
		if o.refuse(why) {
			o.Results = nil
			return nil
		}
	}
	if o.refuse(unmet(r, m, created || fresh > 0)) {
		o.Results = nil
		return nil
	}
	if created || fresh > 0 {
		a.undo.save(r, created)
	}
	if created {
		if err := a.createRun(r, m.create); err != nil {
			return err
		}
	}
	if err := a.store(r, m, o.Results); err != nil {
		return err
	}
	o.LastSeq = r.head.lastSeq
	return nil
}

// store writes what classify found to be new. results are those of the request, in its order.
func (a *applyTx) store(r *run, m *appendCommand, results []EventResult) error {
	next := 0
	for i := range m.blocks {
		b := &m.blocks[i]
		if next+int(b.count) > len(results) {
			return fmt.Errorf("%w: more bodies than headers", errCommand)
		}
		if err := a.storeBlock(r, m, b, next, results[next:next+int(b.count)]); err != nil {
			return err
		}
		next += int(b.count)
	}
	if next != len(results) {
		return fmt.Errorf("%w: %d bodies for %d headers", errCommand, next, len(results))
	}
	return nil
}

func (a *applyTx) storeBlock(r *run, m *appendCommand, b *bodies, first int, results []EventResult) error {
	out := block{
		run: r.ref, count: uint64(b.count), prev: r.head.chain,
		codec: byte(b.codec), rawSize: uint64(b.rawSize), data: b.data,
	}
	if !m.plan.is(r.identity.Plan) {
		out.plan = m.plan.message()
	}
	for i := range results {
		res := &results[i]
		if res.Duplicate {
			out.dead = append(out.dead, uint32(i))
			continue
		}
		if out.firstSeq == 0 {
			out.firstSeq = res.RunSeq
		}
		h := parseHeader(m.headers[(first+i)*headerSize:])
		if err := a.storeEvent(r, &h, res, h.fingerprint(m.imports())); err != nil {
			return err
		}
	}
	if len(out.dead) == len(results) {
		return nil
	}
	a.touch(r)
	if a.undo.on {
		a.undo.blocks = append(a.undo.blocks, waitingBlock{out, r.tenant})
		return nil
	}
	a.tenants.add(r.tenant, a.chunkNo, a.chunkBlocks)
	return a.appendBlock(&out)
}

// storeEvent advances the run's head by one event and writes its receipt.
func (a *applyTx) storeEvent(r *run, h *header, res *EventResult, s fingerprint) error {
	r.head.chain = contract.ChainDigest(r.head.chain, h.record, res.RunSeq, res.PersistedAt)
	r.head.lastSeq, r.head.persistedAt, r.head.position = res.RunSeq, res.PersistedAt, a.position
	a.events++
	rc := receipt{runSeq: res.RunSeq, persistedAt: res.PersistedAt, eventID: h.eventID, content: s.content, record: s.record}
	a.pending.add(r.ref.No, &h.key, &rc)
	a.s.active.addReceipt(r, h.key.prefix())
	a.row = keys.AppendReceipt(a.row[:0], r.ref, h.key[:])
	split := len(a.row)
	a.row = rc.append(a.row)
	return a.batch.Set(a.row[:split], a.row[split:], nil)
}

func (a *applyTx) touch(r *run) {
	if !r.touched {
		r.touched = true
		a.touched = append(a.touched, r)
	}
}

// appendBlock puts a block into the proposal's open chunk and writes its place.
func (a *applyTx) appendBlock(b *block) error {
	if len(a.chunk) == 0 {
		a.chunk = beginChunk(a.chunk, a.stamp)
	}
	a.chunk = b.append(a.chunk)
	if b.count > 0 {
		p := place{position: a.position, chunk: a.chunkNo, block: a.chunkBlocks}
		a.row = keys.AppendPlace(a.row[:0], b.run, b.firstSeq)
		split := len(a.row)
		a.row = p.append(a.row)
		if err := a.batch.Set(a.row[:split], a.row[split:], nil); err != nil {
			return err
		}
	}
	a.chunkBlocks++
	if len(a.chunk) >= chunkTarget {
		return a.flushChunk()
	}
	return nil
}

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

// commit writes the heads, the stamp and the applied state, and makes all of it visible at once.
func (a *applyTx) commit(index, term uint64, crc uint32) error {
	for _, r := range a.touched {
		a.effects = binary.BigEndian.AppendUint64(a.effects, r.ref.No)
		a.effects = r.head.append(a.effects)
		if r.marked {
			if err := a.appendBlock(&block{run: r.ref}); err != nil {
				return err
			}
		}
		a.row = keys.AppendHead(a.row[:0], r.ref)
		split := len(a.row)
		a.row = r.head.append(a.row)
		if err := a.batch.Set(a.row[:split], a.row[split:], nil); err != nil {
			return err
		}
		r.touched, r.marked = false, false
	}
	if err := a.flushChunk(); err != nil {
		return err
	}
	if err := a.commitWrites(); err != nil {
		return err
	}
	err := a.tenants.rows(a.position, func(key, value []byte) error { return a.batch.Set(key, value, nil) })
	if err != nil {
		return err
	}
	a.row = keys.AppendStamp(a.row[:0], a.stamp)
	split := len(a.row)
	a.row = binary.BigEndian.AppendUint64(a.row, uint64(a.position))
	if err := a.batch.Set(a.row[:split], a.row[split:], nil); err != nil {
		return err
	}
	next := a.previous.advance(index, term, a.stamp, a.nextRun, a.events, crc, a.effects)
	row, err := deterministic.Marshal(next.row(a.s.opts.Cluster))
	if err != nil {
		return err
	}
	if err := a.batch.Set(keys.Applied, row, nil); err != nil {
		return err
	}
	if err := a.show(); err != nil {
		return err
	}
	a.s.active.shrink()
	a.s.level.Store(a.level)
	a.s.publish(next)
	return nil
}

// commitWrites writes the rows of machines and of the level, and chains every write of them into
// the rolling hash.
func (a *applyTx) commitWrites() (err error) {
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

// show makes the batch visible, and notes which heads it changes.
func (a *applyTx) show() error {
	c := &a.s.changes
	c.Lock()
	defer c.Unlock()
	for _, r := range a.touched {
		c.addLocked(r.ref.No)
	}
	return a.s.db().Apply(a.batch, pebble.NoSync)
}

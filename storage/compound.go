package storage

import (
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	recordv1 "runlog/proto/record/v1"
	"runlog/storage/internal/overlay"
	"runlog/storage/internal/record"
)

// Answer is what one operation of a compound command gave.
type Answer struct {
	// Err is why the operation has no effect: an error of its owner, or a *NotAppliedError
	// where another operation of the command was refused.
	Err error
	// Results, Created, LastSeq and Ended are those of an append, as in Outcome.
	Results []EventResult
	Created bool
	LastSeq uint64
	Ended   bool
	// Reply is what a machine has answered.
	Reply []byte
}

// NotAppliedError says that an operation has no effect because another one of its command was
// refused.
type NotAppliedError struct {
	Operation int // the one that was refused, from 0
}

func (e *NotAppliedError) Error() string {
	return fmt.Sprintf("not applied because of operation %d of the command", e.Operation)
}

// compound applies the operations of a command, all or none. They change memory at once, so that
// each sees those before it, and their rows wait until all are applied:
//
//	run heads, run numbers, receipts in memory   undo has what they were, or how many
//	receipts, identities, metadata               in a batch of the command's own
//	blocks of events                             in undo.blocks
//	rows of machines, effects                    in the overlay, which rolls back
func (a *applyTx) compound(ops []record.ParsedOperation, o *Outcome) error {
	o.Answers = make([]Answer, len(ops))
	a.undo.begin(a)
	for i := range ops {
		if err := a.operation(&ops[i], &o.Answers[i]); err != nil {
			return fmt.Errorf("operation %d of the command: %w", i, err)
		}
		why := o.Answers[i].Err
		if why == nil {
			continue
		}
		a.undo.rollback(a)
		for j := range o.Answers {
			o.Answers[j] = Answer{Err: &NotAppliedError{Operation: i}}
		}
		o.Answers[i].Err, o.Err = why, why
		return nil
	}
	return a.undo.keep(a)
}

// operation applies one operation of a compound command.
func (a *applyTx) operation(op *record.ParsedOperation, answer *Answer) error {
	switch op.Kind {
	case record.KindAppend:
		if err := a.cmd.Parse(op.Data); err != nil {
			return fmt.Errorf("%w: %w", record.ErrCommand, err)
		}
		var o Outcome
		err := a.append(&a.cmd, &o)
		answer.Err, answer.Results = o.Err, o.Results
		answer.Created, answer.LastSeq, answer.Ended = o.Created, o.LastSeq, o.Ended
		return err
	case record.KindRaiseLevel:
		return a.raiseLevel(op.Data, answer)
	case record.KindBeginIncarnation:
		return a.beginIncarnation(op.Data)
	case record.KindReleaseHold:
		a.held = false
		return nil
	}
	m := a.s.machines[op.Kind]
	if m == nil {
		return a.unknown(op.Kind)
	}
	if needs := m.Level(op.Data); needs > a.level {
		answer.Err = &LevelError{Kind: op.Kind, Needs: needs, Level: a.level}
		return nil
	}
	return a.operate(m, op.Data, answer)
}

// undo is what a compound command has changed. Invariant: without one under way, it is empty, but
// for memory that it uses again. Only the goroutine that applies uses it.
type undo struct {
	on bool // from begin to end

	// What begin found in applyTx.

	nextRun, events uint64
	level           uint32
	incarnation     Incarnation
	fencesAbove     uint64
	held            bool
	touched         int // lengths
	pending, chain  int
	writes          overlay.Mark

	// What the command has done since. runs has each run once, as it was before its first change,
	// in the order of these. blocks wait here, because the open chunk cannot be rolled back.
	runs   []savedRun
	blocks []waitingBlock
	// batch is that of the proposal, while applyTx.batch is scratch, which only this command has
	// written to. keep applies scratch to batch, rollback drops it.
	batch, scratch *pebble.Batch
}

// savedRun is a run as it was before the command.
type savedRun struct {
	run             *run
	made            bool // by the command
	head            record.Head
	metadata        *recordv1.RunMetadata
	touched, marked bool
}

// waitingBlock is a block that goes into the chunks once the command is applied.
type waitingBlock struct {
	record.Block
	tenant record.TenantHash
}

// begin remembers how everything was.
func (u *undo) begin(a *applyTx) {
	if u.scratch == nil {
		u.scratch = a.s.db().NewBatch()
	}
	u.on = true
	u.nextRun, u.events, u.level = a.nextRun, a.events, a.level
	u.incarnation, u.fencesAbove, u.held = a.incarnation, a.fencesAbove, a.held
	u.touched, u.pending, u.chain, u.writes = len(a.touched), len(a.pending.list), len(a.chain), a.writes.Mark()
	u.batch, a.batch = a.batch, u.scratch
}

// save remembers a run that is about to change, or was just made.
func (u *undo) save(r *run, made bool) {
	if !u.on || slices.ContainsFunc(u.runs, func(s savedRun) bool { return s.run == r }) {
		return
	}
	u.runs = append(u.runs, savedRun{r, made, r.head, r.metadata, r.touched, r.marked})
}

// rollback leaves nothing of the command.
func (u *undo) rollback(a *applyTx) {
	for _, s := range slices.Backward(u.runs) {
		r := s.run
		if s.made {
			a.s.active.remove(r)
			continue
		}
		r.head, r.metadata, r.touched, r.marked = s.head, s.metadata, s.touched, s.marked
		if a.pending.has(u.pending, r.ref.No) {
			// Memory may hold some of the command's receipts, and cannot tell which.
			a.s.active.unindex(r)
		}
		a.s.active.resize(r)
	}
	clear(a.touched[u.touched:])
	a.touched = a.touched[:u.touched]
	a.pending.truncate(u.pending)
	a.chain = a.chain[:u.chain]
	a.nextRun, a.events, a.level = u.nextRun, u.events, u.level
	a.incarnation, a.fencesAbove, a.held = u.incarnation, u.fencesAbove, u.held
	a.writes.Rollback(u.writes)
	u.end(a)
}

// keep makes what the command has written a part of the proposal.
func (u *undo) keep(a *applyTx) error {
	if !u.scratch.Empty() {
		if err := u.batch.Apply(u.scratch, nil); err != nil {
			return err
		}
	}
	blocks := u.blocks
	u.end(a)
	for i := range blocks {
		a.tenants.Add(blocks[i].tenant, a.chunkNo, a.chunkBlocks)
		if err := a.appendBlock(&blocks[i].Block); err != nil {
			return err
		}
	}
	clear(blocks)
	return nil
}

func (u *undo) end(a *applyTx) {
	a.batch = u.batch
	u.scratch.Reset()
	clear(u.runs)
	*u = undo{runs: u.runs[:0], blocks: u.blocks[:0], scratch: u.scratch}
}

// close drops what is left of a command after an error. The node stops then.
func (u *undo) close(a *applyTx) {
	if u.on {
		u.end(a)
	}
	if u.scratch != nil {
		_ = u.scratch.Close()
		u.scratch = nil
	}
}

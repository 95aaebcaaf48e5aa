package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"runlog/proto/contract"
	"runlog/server/budget"
	"runlog/server/limits"
	"runlog/server/replica/batch"
	"runlog/storage"
)

// reservedShare bounds the memory that a tenant may reserve, in multiples of what is free.
const reservedShare = 2

// overloadDelay is the retry delay for a caller that was refused for lack of memory. The waiting
// events are answered in about that time.
const overloadDelay = 250 * time.Millisecond

// The ways to the log:
//
//	Propose         admits a command, and does not wait
//	Submit          waits; the outcome has a refusal by the state machine
//	Execute         waits; such a refusal is the error
//	Append          encodes and admits an append, and waits
//	Admit, Wait     the same in two steps, for streams: the next one is admitted meanwhile
//	ExecuteAppend   is Append with other operations in its command
//	AppendFrozen    is Append for the authority, while other appends of the run wait

// Propose admits a command to the log, in a line of the batcher, and does not wait for its outcome.
// Commands of one line are applied in the order in which they were proposed. After an error nothing
// is stored.
func (r *Replica) Propose(line string, cmd storage.Command) (batch.Ticket, error) {
	if err := r.opts.Disk.admit(); err != nil {
		return batch.Ticket{}, err
	}
	return r.batcher.Enqueue(line, cmd)
}

// Execute proposes a command and waits until it is applied. It returns a refusal by the state
// machine as the error.
func (r *Replica) Execute(ctx context.Context, cmd storage.Command) (storage.Outcome, error) {
	outcome, err := r.Submit(ctx, cmd)
	if err == nil {
		err = outcome.Err
	}
	return outcome, err
}

// ownLine of the batcher has the commands that are no appends.
const ownLine = ""

// Submit proposes a command of the node itself and waits until it is applied. The outcome contains
// a refusal by the state machine.
func (r *Replica) Submit(ctx context.Context, cmd storage.Command) (storage.Outcome, error) {
	ticket, err := r.Propose(ownLine, cmd)
	if err != nil {
		return storage.Outcome{}, err
	}
	return ticket.Wait(ctx)
}

// Appended is the result of an append.
type Appended struct {
	storage.Outcome
	// Diverged lists the numbers of the duplicates whose content differs from the stored event
	// (IDM-7).
	Diverged []int
	// Keys has the idempotency keys of the events whose attempt the authority assigned (IDM-10), by
	// their number.
	Keys map[int]string
}

// Pending is an admitted append. Wait must be called exactly once.
type Pending struct {
	r      *Replica
	append *storage.Append
	around *Around // nil: the command is the append
	size   int64   // in bytes
	memory budget.Grant
	tenant *limits.Tenant
	ticket batch.Ticket
}

// Append stores the events of one run, all or none (APP-3). It assigns the attempts that they leave
// out, and assigns them again if another request came in between (IDM-10): at each try, at least
// one of the competing requests is stored.
func (r *Replica) Append(ctx context.Context, a *storage.Append) (Appended, error) {
	if err := r.freezes.wait(ctx, a.RunID); err != nil {
		return Appended{}, err
	}
	return r.append(ctx, a, nil, "")
}

// frozenLine is the suffix of the name of a tenant's line for AppendFrozen.
const frozenLine = "\x00frozen"

// AppendFrozen is Append that does not wait while the run is frozen. It does not wait behind the
// other appends of its tenant either. before are operations that come first in its command, all or
// none.
func (r *Replica) AppendFrozen(ctx context.Context, a *storage.Append, before ...storage.Operation) (Appended, error) {
	var around *Around
	if len(before) > 0 {
		around = &Around{Before: before}
	}
	return r.append(ctx, a, around, frozenLine)
}

func (r *Replica) append(ctx context.Context, a *storage.Append, around *Around, line string) (Appended, error) {
	tenant, err := r.charge(a)
	if err != nil {
		return Appended{}, err
	}
	for {
		if LeavesOutAttempts(a) {
			if err := r.store.AssignAttempts(a); err != nil {
				return Appended{}, err
			}
		}
		p, err := r.admit(a, around, tenant, tenant.Name+line)
		if err != nil {
			return Appended{}, err
		}
		out, err := p.Wait(ctx)
		if !storage.Overtaken(a, err) || ctx.Err() != nil {
			return out, err
		}
	}
}

// LeavesOutAttempts reports whether the authority assigns an attempt to an event of a request
// (IDM-10).
func LeavesOutAttempts(a *storage.Append) bool {
	for i := range a.Events { // An event is too large to be copied.
		if a.Events[i].AttemptAssigned {
			return true
		}
	}
	return false
}

// Admit encodes an append, whose events all have an attempt, and admits it to the log, in a line of
// the batcher. After an error nothing is stored.
func (r *Replica) Admit(ctx context.Context, a *storage.Append, line string) (Pending, error) {
	if err := r.freezes.wait(ctx, a.RunID); err != nil {
		return Pending{}, err
	}
	tenant, err := r.charge(a)
	if err != nil {
		return Pending{}, err
	}
	return r.admit(a, nil, tenant, line)
}

// Around are the operations of a command that come before and after its append.
type Around struct{ Before, After []storage.Operation }

// encode makes the command of an append. With other operations it is one of several, all or none.
func (o *Around) encode(a *storage.Append) (storage.Command, error) {
	if o == nil {
		return storage.EncodeAppend(a)
	}
	op, err := storage.AppendOperation(a)
	if err != nil {
		return storage.Command{}, err
	}
	return storage.EncodeCommand(slices.Concat(o.Before, []storage.Operation{op}, o.After)...)
}

// ExecuteAppend is Append with other operations in its command, all or none. The outcome has the
// answers of all, and the results of the append. It is set also with a refusal.
func (r *Replica) ExecuteAppend(ctx context.Context, a *storage.Append, around Around) (Appended, error) {
	if err := r.freezes.wait(ctx, a.RunID); err != nil {
		return Appended{}, err
	}
	return r.append(ctx, a, &around, "")
}

func (r *Replica) admit(a *storage.Append, around *Around, tenant *limits.Tenant, line string) (Pending, error) {
	a.Keyed = r.store.Keyed()
	cmd, err := around.encode(a)
	if err != nil {
		return Pending{}, err
	}
	// The decoded events and the command wait for the answer.
	size := limits.Bytes(a) + int64(cmd.Size())
	memory, err := r.reserve(budget.OfAppend(limits.Bytes(a)), size, tenant)
	if err != nil {
		return Pending{}, err
	}
	ticket, err := r.Propose(line, cmd)
	if err != nil {
		r.release(size, &memory, tenant)
		return Pending{}, err
	}
	return Pending{r: r, append: a, around: around, size: size, memory: memory, tenant: tenant, ticket: ticket}, nil
}

// Wait returns the result once it is durable and applied (APP-2).
func (p *Pending) Wait(ctx context.Context) (Appended, error) {
	defer p.r.release(p.size, &p.memory, p.tenant)
	outcome, err := p.ticket.Wait(ctx)
	if err == nil {
		err = outcome.Err
	}
	if err != nil {
		return Appended{Outcome: outcome}, err
	}
	if p.around != nil {
		own := &outcome.Answers[len(p.around.Before)]
		outcome.Results, outcome.LastSeq, outcome.Ended = own.Results, own.LastSeq, own.Ended
	}
	return p.r.appended(p.append, outcome)
}

// reserve reserves memory for a request while it waits for its answer. It refuses requests beyond
// the budget, and beyond the tenant's share of it (APP-9, D12, SEC-6).
func (r *Replica) reserve(class budget.Class, size int64, tenant *limits.Tenant) (budget.Grant, error) {
	free, own := r.opts.Memory.Free(class), tenant.Reserved.Add(size)
	if own > size && own > reservedShare*free {
		tenant.Reserved.Add(-size)
		return budget.Grant{}, &contract.Error{Reason: contract.ReasonOverloaded, RetryAfter: overloadDelay,
			Message: "the node has as many events waiting as its memory allows; the request was not stored"}
	}
	memory, err := r.opts.Memory.Acquire(class, size)
	if err != nil {
		tenant.Reserved.Add(-size)
		return budget.Grant{}, err
	}
	r.reserved.Add(size)
	return memory, nil
}

func (r *Replica) release(size int64, memory *budget.Grant, tenant *limits.Tenant) {
	memory.Release()
	r.reserved.Add(-size)
	tenant.Reserved.Add(-size)
}

// Busy reports whether appends are in flight.
func (r *Replica) Busy() bool { return r.reserved.Load() > 0 }

// appended counts the events and finds the duplicates that diverge.
func (r *Replica) appended(a *storage.Append, outcome storage.Outcome) (Appended, error) {
	out := Appended{Outcome: outcome}
	duplicates := 0
	for i := range outcome.Results {
		res, e := &outcome.Results[i], &a.Events[i]
		if res.Attempt != 0 {
			e.SetAttempt(res.Attempt)
			out.setKey(i, e.IdempotencyKey)
		}
		if !res.Duplicate {
			continue
		}
		duplicates++
		if res.SameContent {
			continue
		}
		key, diverged, err := r.diverged(e, res.RunSeq)
		if err != nil {
			return Appended{}, err
		}
		if diverged {
			out.Diverged = append(out.Diverged, i)
		}
		if res.Attempt != 0 {
			out.setKey(i, key)
		}
	}
	r.countRemarks(a.Events)
	r.metrics.inserted.Add(float64(len(outcome.Results) - duplicates))
	r.metrics.duplicates.Add(float64(duplicates))
	return out, nil
}

func (a *Appended) setKey(i int, key string) {
	if a.Keys == nil {
		a.Keys = map[int]string{}
	}
	a.Keys[i] = key
}

// countRemarks counts what the answer remarks on (ENV-6, ENV-9).
func (r *Replica) countRemarks(events []contract.Event) {
	unknown, warnings := 0, 0
	for i := range events {
		if contract.TypeCode(events[i].Type) == 0 {
			unknown++
		}
		warnings += len(events[i].Warnings)
	}
	if unknown > 0 {
		r.metrics.unknown.Add(float64(unknown))
	}
	if warnings > 0 {
		r.metrics.warnings.Add(float64(warnings))
	}
}

// diverged compares a duplicate whose bytes differ with the stored event, as JSON values (IDM-7),
// and returns the stored event's key. Apply does not compare them: the result changes no state, and
// it costs a read.
func (r *Replica) diverged(e *contract.Event, seq uint64) (key string, _ bool, err error) {
	v, err := r.store.View(e.RunID)
	if err != nil {
		return "", false, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	for stored, err := range v.Events(seq - 1) {
		if err != nil {
			return "", false, err
		}
		given := *e
		inherit(&given, v.Run)
		if contract.SameContent(&stored.Event, &given) {
			return stored.IdempotencyKey, false, nil
		}
		r.metrics.diverged.Inc()
		r.log.Warn("duplicate with other content; the first write stays",
			"run", e.RunID, "seq", seq, "type", e.Type, "key", e.IdempotencyKey)
		return stored.IdempotencyKey, true, nil
	}
	return "", false, fmt.Errorf("server: run %q has a receipt for runSeq %d and no event", e.RunID, seq)
}

// inherit fills in the fields that a sparse event leaves out, as reading does (ENV-1).
func inherit(e *contract.Event, r *storage.Run) {
	for _, f := range [...]struct {
		bit  contract.Absent
		have *string
		run  string
	}{
		{contract.AbsentTenant, &e.TenantID, r.Scope.TenantID},
		{contract.AbsentProject, &e.ProjectID, r.Scope.ProjectID},
		{contract.AbsentEnvironment, &e.EnvironmentID, r.Scope.EnvironmentID},
		{contract.AbsentPlan, &e.PlanID, r.PlanID},
		{contract.AbsentPlanVersion, &e.PlanVersion, r.PlanVersion},
	} {
		if e.Absent&f.bit != 0 {
			*f.have = f.run
		}
	}
}

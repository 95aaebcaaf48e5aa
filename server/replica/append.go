package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"runlog/proto/contract"
	"runlog/server/replica/batch"
	"runlog/storage"
)

// overloadDelay is the retry delay for a caller that was refused for lack of memory. The waiting
// events are answered in about that time.
const overloadDelay = 250 * time.Millisecond

// Propose admits a command to the log and does not wait for its outcome. Commands that one caller
// proposes in sequence are applied in that order. After an error nothing is stored.
func (r *Replica) Propose(cmd storage.Command) (batch.Ticket, error) {
	if err := r.opts.Disk.admit(); err != nil {
		return batch.Ticket{}, err
	}
	return r.batcher.Enqueue(cmd)
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

// Submit proposes a command of the node itself and waits until it is applied. The outcome contains
// a refusal by the state machine.
func (r *Replica) Submit(ctx context.Context, cmd storage.Command) (storage.Outcome, error) {
	ticket, err := r.Propose(cmd)
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
	held   int64
	ticket batch.Ticket
}

// Append stores the events of one run, all or none (APP-3). It assigns the attempts that they leave
// out, and assigns them again if another request came in between (IDM-10): at each try, at least
// one of the competing requests is stored.
func (r *Replica) Append(ctx context.Context, a *storage.Append) (Appended, error) {
	for {
		if LeavesOutAttempts(a) {
			if err := r.store.AssignAttempts(a); err != nil {
				return Appended{}, err
			}
		}
		p, err := r.Admit(a)
		if err != nil {
			return Appended{}, err
		}
		out, err := p.Wait(ctx)
		if err == nil || !overtaken(err) || ctx.Err() != nil {
			return out, err
		}
	}
}

// overtaken reports whether another request took an attempt in between.
func overtaken(err error) bool {
	var e *storage.AttemptError
	return errors.As(err, &e)
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

// Admit encodes an append, whose events all have an attempt, and admits it to the log. After an
// error nothing is stored.
func (r *Replica) Admit(a *storage.Append) (Pending, error) {
	cmd, err := storage.EncodeAppend(a)
	if err != nil {
		return Pending{}, err
	}
	held, err := r.hold(a)
	if err != nil {
		return Pending{}, err
	}
	ticket, err := r.Propose(cmd)
	if err != nil {
		r.held.Add(-held)
		return Pending{}, err
	}
	return Pending{r: r, append: a, held: held, ticket: ticket}, nil
}

// Wait returns the result once it is durable and applied (APP-2).
func (p *Pending) Wait(ctx context.Context) (Appended, error) {
	defer p.r.held.Add(-p.held)
	outcome, err := p.ticket.Wait(ctx)
	if err == nil {
		err = outcome.Err
	}
	if err != nil {
		return Appended{}, err
	}
	return p.r.appended(p.append, outcome)
}

// heldEvent is the approximate memory of an event without its payload, in bytes.
const heldEvent = 512

// hold counts the decoded events of a request while they wait for their answer; the batcher's queue
// counts them compressed. It refuses events beyond the memory of the node (APP-9, D12).
func (r *Replica) hold(a *storage.Append) (int64, error) {
	size := int64(0)
	for i := range a.Events {
		size += heldEvent + int64(len(a.Events[i].Payload)+len(a.Events[i].Extensions))
	}
	if now := r.held.Add(size); now > r.opts.HeldBytes && now > size {
		r.held.Add(-size)
		return 0, &contract.Error{Reason: contract.ReasonOverloaded, RetryAfter: overloadDelay,
			Message: "the node has as many events waiting as its memory allows; the request was not stored"}
	}
	return size, nil
}

// Busy reports whether appends are in flight.
func (r *Replica) Busy() bool { return r.held.Load() > 0 }

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

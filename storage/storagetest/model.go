package storagetest

import (
	"crypto/sha256"
	"slices"

	"runlog/proto/contract"
	"runlog/storage"
)

// Model is what the contract says a store does, in memory and without any cleverness.
type Model struct {
	position storage.Position
	stamp    int64
	events   uint64
	before   uint64 // events before the proposal
	runs     map[string]*modelRun
	log      []storage.Commit
	marked   []*modelRun
	rows     map[string]string // of the machine Writer
	level    uint32

	// readsMeaning makes it judge duplicates by what they say, as an edge does, and not by their
	// bytes (IDM-7).
	readsMeaning bool
	// bug makes the model wrong in one way, to show that the suite would notice.
	bug bug
}

// bug is a mistake that a store could make.
type bug int

const (
	noBug               bug = iota
	bugTwice                // stores a duplicate inside a request again (IDM-8)
	bugForgets              // forgets the receipts at a restart (IDM-6)
	bugExpectationFirst     // checks the expectation before it looks for duplicates (APP-4)
	bugClock                // takes the leader's clock as it is (APP-5)
	bugHalf                 // stores the events in front of a refused one (APP-3)
	bugChain                // starts a new chain with each proposal (APP-11)
	bugScope                // takes any scope (APP-6)
	bugPlan                 // reads every event with the run's plan
	bugDivergence           // takes the first of two equal duplicates for the stored event (IDM-7)
	bugFenceFirst           // checks the fence before it looks for duplicates (QUE-8)
	bugAttempt              // takes any attempt that was assigned (IDM-10)
	bugCreateAdds           // lets CreateRun add events to a run that exists (APP-12)
	bugTaken                // takes an event that must be new for a duplicate
	bugHalfCompound         // keeps what operations did before a refused one
	lastBug
)

type modelRun struct {
	run      storage.Run
	creation *storage.Creation
	stored   []contract.Event // as given
	records  []storage.Record
	byKey    map[string]int
}

var _ System = (*Model)(nil)

// NewModel returns an empty model.
func NewModel() *Model {
	return &Model{runs: map[string]*modelRun{}, rows: map[string]string{}, level: storage.CoreLevel}
}

// Propose implements System.
func (m *Model) Propose(clock int64, requests []Request) ([]storage.Outcome, error) {
	m.position++
	m.before = m.events
	m.stamp = max(m.stamp+1, clock)
	if m.bug == bugClock {
		m.stamp = clock
	}
	var outcomes []storage.Outcome
	for _, r := range requests {
		o := storage.Outcome{Position: m.position, PersistedAt: m.stamp}
		switch {
		case r.Append != nil:
			m.append(r.Append, &o)
		case r.Fence != nil:
			m.setFence(r.Fence, &o)
		case r.Compound != nil:
			m.compound(r.Compound, &o)
		default:
			m.compound([]Request{r}, &o)
		}
		outcomes = append(outcomes, o)
	}
	for _, r := range m.marked {
		m.log = append(m.log, storage.Commit{Position: m.position, PersistedAt: m.stamp, Run: &r.run})
	}
	m.marked = nil
	return outcomes, nil
}

func (m *Model) append(a *storage.Append, o *storage.Outcome) {
	r := m.runs[a.RunID]
	scope := scopeOf(a)
	if r == nil {
		o.Err = refuseNew(a, scope)
	} else {
		o.LastSeq = r.run.LastSeq
		o.Err = m.refuseKnown(r, a, scope)
	}
	if o.Err != nil {
		return
	}
	isNew := r == nil
	if isNew {
		r = m.makeRun(a, scope)
	}
	results, fresh, why := m.classify(r, a)
	if o.Err = why; why != nil {
		return
	}
	if len(a.Imported) > 0 {
		if o.Err = m.assign(r, a, results); o.Err != nil {
			return
		}
	}
	if a.Create != nil && !isNew && len(fresh) > 0 && m.bug != bugCreateAdds {
		o.Err = &storage.RunExistsError{RunID: a.RunID, NewEvent: fresh[0] + 1}
		return
	}
	taken := m.takenKey(a, results)
	conditional := isNew || len(fresh) > 0 || taken != nil
	if given := a.Fence; given != nil && *given != r.run.Fence && (conditional || m.bug == bugFenceFirst) {
		o.Err = &storage.LeaseLostError{RunID: a.RunID, Given: *given, Current: r.run.Fence}
		return
	}
	if want := a.ExpectedLastSeq; want != nil && *want != r.run.LastSeq && (conditional || m.bug == bugExpectationFirst) {
		o.Err = &storage.SequenceError{RunID: a.RunID, Expected: *want, Last: r.run.LastSeq}
		if m.bug == bugHalf && len(fresh) > 1 {
			m.store(r, a, fresh[:1])
		}
		return
	}
	if o.Err = taken; taken != nil {
		return
	}
	if isNew {
		m.runs[a.RunID] = r
		m.mark(r)
	} else if a.Create != nil {
		m.adopt(r, a.Create)
	}
	o.Created = isNew
	m.store(r, a, fresh)
	o.Results, o.LastSeq, o.Ended = results, r.run.LastSeq, r.run.Statuses.Ended()
}

// takenKey is the first event that must be new and is not.
func (m *Model) takenKey(a *storage.Append, results []storage.EventResult) error {
	if !a.OnlyNew || m.bug == bugTaken {
		return nil
	}
	i := slices.IndexFunc(results, func(r storage.EventResult) bool { return r.Duplicate })
	if i < 0 {
		return nil
	}
	return &storage.KeyTakenError{RunID: a.RunID, Index: i, Key: sha256.Sum256([]byte(a.Events[i].IdempotencyKey)), RunSeq: results[i].RunSeq}
}

// scopeOf is what the events and the creation name between them.
func scopeOf(a *storage.Append) storage.Scope {
	var s storage.Scope
	if a.Create != nil {
		s = a.Create.Scope
	}
	for i := range a.Events {
		e := &a.Events[i]
		if s.TenantID == "" && e.Absent&contract.AbsentTenant == 0 {
			s.TenantID = e.TenantID
		}
		if s.ProjectID == "" && e.Absent&contract.AbsentProject == 0 {
			s.ProjectID = e.ProjectID
		}
		if s.EnvironmentID == "" && e.Absent&contract.AbsentEnvironment == 0 {
			s.EnvironmentID = e.EnvironmentID
		}
	}
	return s
}

// refuseNew: the first event of a run, or its creation, says where the run belongs (ENV-1).
func refuseNew(a *storage.Append, scope storage.Scope) error {
	var absent contract.Absent
	if a.Create == nil {
		absent = a.Events[0].Absent
	}
	var missing []string
	if scope.TenantID == "" || absent&contract.AbsentTenant != 0 {
		missing = append(missing, "tenantId")
	}
	if scope.ProjectID == "" || absent&contract.AbsentProject != 0 {
		missing = append(missing, "projectId")
	}
	if scope.EnvironmentID == "" || absent&contract.AbsentEnvironment != 0 {
		missing = append(missing, "environmentId")
	}
	if missing != nil {
		return &storage.UnscopedError{RunID: a.RunID, Fields: missing}
	}
	return nil
}

// refuseKnown: a run never moves (APP-6), and is made once (APP-12).
func (m *Model) refuseKnown(r *modelRun, a *storage.Append, scope storage.Scope) error {
	refuse := func(field, given, want string) error {
		if given == "" || given == want || m.bug == bugScope {
			return nil
		}
		return &storage.ScopeError{RunID: a.RunID, Field: field, Index: -1, Given: given, Want: want}
	}
	have := &r.run.Scope
	if err := refuse("tenantId", scope.TenantID, have.TenantID); err != nil {
		return err
	}
	if err := refuse("projectId", scope.ProjectID, have.ProjectID); err != nil {
		return err
	}
	if err := refuse("environmentId", scope.EnvironmentID, have.EnvironmentID); err != nil {
		return err
	}
	if len(a.Imported) > 0 && !r.run.Imported {
		return &storage.RunExistsError{RunID: a.RunID, Native: true}
	}
	if a.Create != nil {
		return refuseCreate(r, a)
	}
	return nil
}

func (m *Model) makeRun(a *storage.Append, scope storage.Scope) *modelRun {
	r := &modelRun{byKey: map[string]int{}}
	r.run = storage.Run{RunID: a.RunID, Scope: scope, CreatedAt: m.stamp, CreatedPosition: m.position, Imported: len(a.Imported) > 0,
		Statuses: contract.StatusPending.Only()}
	if len(a.Events) > 0 {
		r.run.PlanID, r.run.PlanVersion = a.Events[0].PlanID, a.Events[0].PlanVersion
	}
	if c := a.Create; c != nil {
		r.creation = c
		r.run.Metadata = ownMetadata(&c.Metadata)
		if ref := c.Metadata.PlanRef; ref != nil {
			r.run.PlanID, r.run.PlanVersion = ref.PlanID, ref.PlanVersion
		}
	}
	return r
}

// classify answers for each event (IDM-6, IDM-8) and lists those that are new. why is that of an
// attempt (IDM-10).
func (m *Model) classify(r *modelRun, a *storage.Append) (results []storage.EventResult, fresh []int, why error) {
	first := map[string]int{}
	before := slices.Clone(r.stored)
	for i := range a.Events {
		given := a.Events[i]
		key := given.IdempotencyKey
		var attempt uint32
		if given.AttemptAssigned {
			if attempt, key, why = m.attempt(a.RunID, i, &given, before); why != nil {
				return nil, nil, why
			}
			if m.readsMeaning {
				given.SetAttempt(attempt) // an edge compares what would have been stored
			}
		}
		if at, ok := r.byKey[key]; ok {
			s := &r.records[at]
			res := storage.EventResult{
				EventID: s.EventID, RunSeq: s.RunSeq, PersistedAt: s.PersistedAt,
				Duplicate: true, SameContent: m.sameContent(&r.run, &r.stored[at], &given), Attempt: attempt,
			}
			if len(a.Imported) > 0 && s.Original.PersistedAt != 0 {
				res.SameContent = sameRecord(&r.stored[at], s.Original, &given, a.Imported[i].Original)
			}
			if f, ok := first[key]; ok && m.bug == bugDivergence {
				res.SameContent = m.sameContent(&r.run, &a.Events[f], &given)
			}
			first[key] = i
			results = append(results, res)
			continue
		}
		if f, ok := first[key]; ok && m.bug != bugTwice {
			res := results[f]
			res.Duplicate, res.SameContent, res.Attempt = true, m.sameContent(&r.run, &a.Events[f], &given), attempt
			if len(a.Imported) > 0 {
				res.SameContent = sameRecord(&a.Events[f], a.Imported[f].Original, &given, a.Imported[i].Original)
			}
			results = append(results, res)
			continue
		}
		first[key] = i
		fresh = append(fresh, i)
		before = append(before, given)
		results = append(results, storage.EventResult{
			EventID: given.EventID, RunSeq: r.run.LastSeq + uint64(len(fresh)), PersistedAt: m.stamp, Attempt: attempt,
		})
	}
	return results, fresh, nil
}

// assign lets imported events keep what they bring along, if the run can have them so.
func (m *Model) assign(r *modelRun, a *storage.Append, results []storage.EventResult) error {
	before := r.run.LastSeq
	for i := range results {
		res, given := &results[i], a.Imported[i].RunSeq
		refuse := func(field string) error {
			return &storage.ImportError{RunID: a.RunID, Index: i, Field: field, Given: given, Before: before}
		}
		if res.Duplicate {
			if _, stored := r.byKey[a.Events[i].IdempotencyKey]; !stored {
				first := slices.IndexFunc(a.Events, func(e contract.Event) bool { return e.IdempotencyKey == a.Events[i].IdempotencyKey })
				res.RunSeq = results[first].RunSeq
			}
			same := res.SameContent && res.EventID == a.Events[i].EventID
			if !same || res.RunSeq != given {
				return refuse("idempotencyKey")
			}
			continue
		}
		if given <= before {
			return refuse("runSeq")
		}
		res.RunSeq, before = given, given
	}
	return nil
}

// sameRecord is what an import compares: all but the importer.
func sameRecord(a *contract.Event, originalA contract.Original, b *contract.Event, originalB contract.Original) bool {
	_, recordA := recordDigest(a, contract.Salt{}, contract.Author{}, originalA)
	_, recordB := recordDigest(b, contract.Salt{}, contract.Author{}, originalB)
	return recordA == recordB
}

func (m *Model) sameContent(run *storage.Run, stored, e *contract.Event) bool {
	if m.readsMeaning {
		return m.sameMeaning(run, stored, e)
	}
	return sameContent(stored, e)
}

func (m *Model) store(r *modelRun, a *storage.Append, fresh []int) {
	salts := saltsOf(a)
	for n, i := range fresh {
		e := a.Events[i]
		e.AttemptAssigned = false // a record does not tell
		rec := storage.Record{Position: m.position, Offset: uint32(m.events - m.before), Recorded: contract.Recorded{Event: m.inherit(&r.run, e), RunSeq: r.run.LastSeq + 1, PersistedAt: m.stamp, AppendedBy: a.AppendedBy, PayloadSalt: salts[i]}}
		if len(a.Imported) > 0 {
			rec.RunSeq, rec.Original = a.Imported[i].RunSeq, a.Imported[i].Original
		}
		rec.PayloadDigest, rec.RecordDigest = recordDigest(&e, rec.PayloadSalt, rec.AppendedBy, rec.Original)
		prev := contract.Digest(r.run.Chain)
		if m.bug == bugChain && n == 0 {
			prev = contract.Digest{}
		}
		rec.Previous = prev
		rec.ChainDigest = chainDigest(prev, rec.RecordDigest, rec.RunSeq, rec.PersistedAt)
		r.byKey[e.IdempotencyKey] = len(r.records)
		r.records = append(r.records, rec)
		r.stored = append(r.stored, e)
		r.run.Statuses = r.run.Statuses.After(rec.Type)
		r.run.LastSeq, r.run.PersistedAt, r.run.Chain, r.run.Position = rec.RunSeq, rec.PersistedAt, rec.ChainDigest, rec.Position
		m.events++
		m.log = append(m.log, storage.Commit{Position: m.position, PersistedAt: m.stamp, Run: &r.run, Records: []storage.Record{rec}})
	}
}

// inherit fills in what a sparse event leaves out (ENV-1).
func (m *Model) inherit(run *storage.Run, e contract.Event) contract.Event {
	if e.Absent&contract.AbsentTenant != 0 {
		e.TenantID = run.Scope.TenantID
	}
	if e.Absent&contract.AbsentProject != 0 {
		e.ProjectID = run.Scope.ProjectID
	}
	if e.Absent&contract.AbsentEnvironment != 0 {
		e.EnvironmentID = run.Scope.EnvironmentID
	}
	if e.Absent&contract.AbsentPlan != 0 || m.bug == bugPlan {
		e.PlanID = run.PlanID
	}
	if e.Absent&contract.AbsentPlanVersion != 0 || m.bug == bugPlan {
		e.PlanVersion = run.PlanVersion
	}
	return e
}

// setFence raises a run's fence, which never falls (QUE-6).
func (m *Model) setFence(s *SetFence, o *storage.Outcome) {
	switch r := m.runs[s.RunID]; {
	case r == nil:
		o.Err = &storage.RunNotFoundError{RunID: s.RunID}
	case s.Fence <= r.run.Fence:
		o.Err = &storage.LeaseLostError{RunID: s.RunID, Given: s.Fence, Current: r.run.Fence}
	default:
		r.run.Fence = s.Fence
	}
}

// mark notes that the proposal made the run or changed its metadata, which the log tells once.
func (m *Model) mark(r *modelRun) {
	for _, have := range m.marked {
		if have == r {
			return
		}
	}
	m.marked = append(m.marked, r)
}

// Run implements System.
func (m *Model) Run(runID string) (*storage.Run, error) {
	r := m.runs[runID]
	if r == nil {
		return nil, &storage.RunNotFoundError{RunID: runID}
	}
	run := r.run
	return &run, nil
}

// Events implements System.
func (m *Model) Events(runID string, after uint64) ([]storage.Record, error) {
	r := m.runs[runID]
	if r == nil {
		return nil, &storage.RunNotFoundError{RunID: runID}
	}
	for i := range r.records {
		if r.records[i].RunSeq > after {
			return r.records[i:], nil
		}
	}
	return nil, nil
}

// Log implements System.
func (m *Model) Log(after storage.Position) ([]storage.Commit, error) {
	for i := range m.log {
		if m.log[i].Position > after {
			return m.log[i:], nil
		}
	}
	return nil, nil
}

// Applied implements System. Only a store has a term and a rolling hash.
func (m *Model) Applied() storage.Applied {
	return storage.Applied{Index: uint64(m.position), PersistedAt: m.stamp, Events: m.events}
}

// Reopen implements System.
func (m *Model) Reopen() error {
	if m.bug == bugForgets {
		for _, r := range m.runs {
			clear(r.byKey)
		}
	}
	return nil
}

// Close implements System.
func (m *Model) Close() error { return nil }

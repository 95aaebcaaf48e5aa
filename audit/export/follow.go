package export

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"runlog/audit/proof"
	"runlog/proto/contract"
)

// maxRuns bounds the remembered runs: at most twice as many. A run that does not occur among so
// many others is forgotten, and its next record is not compared with its last.
const maxRuns = 200_000

// follower checks the records of a file in order.
type follower struct {
	report *Report
	m      *Manifest
	unit   string
	tally  Tally
	last   int64 // the stamp of the record before
	runs   struct{ young, old map[string]*followed }
	seed   maphash.Seed
}

// followed is the remembered state of a run.
type followed struct {
	at    uint64 // the line or row of its last record
	seq   uint64
	chain contract.Digest
	scope uint64 // a hash of its tenant, project and environment
}

func newFollower(report *Report, unit string) *follower {
	return &follower{report: report, m: &report.Manifest, unit: unit, seed: maphash.MakeSeed()}
}

// record checks the next record, and reports whether to continue.
func (f *follower) record(c *checked) bool {
	r := &c.Record
	f.report.Events++
	at := f.report.Events
	if c.fault != "" {
		f.report.fault("%s %d %s", f.unit, at, c.fault)
		return false
	}
	for _, wrong := range [...]string{c.wrong, f.outside(r), f.stray(r)} {
		if wrong != "" {
			f.wrong(at, r, wrong)
		}
	}
	f.follow(at, r)
	f.tally.Add(r)
	return true
}

func (f *follower) wrong(at uint64, r *Record, wrong string) {
	f.report.fault("%s %d (run %s, runSeq %d): %s", f.unit, at, contract.Quote(r.RunID), r.RunSeq, wrong)
}

// outside reports a record outside of the time window.
func (f *follower) outside(r *Record) (wrong string) {
	stamp := r.PersistedAt
	switch {
	case stamp < f.m.From || stamp >= f.m.To:
		wrong = fmt.Sprintf("persistedAt %s is outside of the window, which is from %s to before %s",
			proof.FormatTime(stamp), proof.FormatTime(f.m.From), proof.FormatTime(f.m.To))
	case stamp < f.last:
		wrong = fmt.Sprintf("persistedAt %s is before that of the record before, %s: the order was changed", proof.FormatTime(stamp), proof.FormatTime(f.last))
	}
	f.last = stamp
	return wrong
}

// stray reports a record that does not match the filter.
func (f *follower) stray(r *Record) string {
	for _, want := range [...]struct{ name, filter, has string }{
		{"tenantId", f.m.TenantID, r.TenantID},
		{"projectId", f.m.ProjectID, r.ProjectID},
		{"environmentId", f.m.EnvironmentID, r.EnvironmentID},
		{"planId", f.m.PlanID, r.PlanID},
		{"runId", f.m.RunID, r.RunID},
		{"stepId", f.m.StepID, r.StepID},
	} {
		if want.filter != "" && want.filter != want.has {
			return fmt.Sprintf("%s is %s, and the window's filter is %s", want.name, contract.Quote(want.has), contract.Quote(want.filter))
		}
	}
	if len(f.m.Types) > 0 && !slices.Contains(f.m.Types, r.Type) {
		return fmt.Sprintf("eventType %s is none of those that the window's filter has", contract.Quote(r.Type))
	}
	return ""
}

// follow compares a record with its predecessor in the run (APP-1, APP-6, APP-11).
func (f *follower) follow(at uint64, r *Record) {
	run := f.run(r.RunID)
	scope := f.scope(r)
	link := contract.ChainDigest(run.chain, r.RecordDigest, r.RunSeq, r.PersistedAt)
	switch {
	case run.at == 0 && r.RunSeq > 1:
	case r.RunSeq <= run.seq:
		f.wrong(at, r, fmt.Sprintf("it comes behind runSeq %d of its run, in %s %d", run.seq, f.unit, run.at))
	case r.RunSeq != run.seq+1:
	case link == r.ChainDigest:
		f.report.Links++
	case r.RunSeq == 1:
		f.wrong(at, r, "chainDigest is not that of a run's first record")
	default:
		f.wrong(at, r, fmt.Sprintf("chainDigest does not follow from that of runSeq %d, in %s %d", run.seq, f.unit, run.at))
	}
	if run.at != 0 && run.scope != scope {
		f.wrong(at, r, fmt.Sprintf("tenantId, projectId or environmentId is not that of its run in %s %d", f.unit, run.at))
	}
	*run = followed{at, r.RunSeq, r.ChainDigest, scope}
}

// run returns the remembered state of a run.
func (f *follower) run(id string) *followed {
	if run := f.runs.young[id]; run != nil {
		return run
	}
	if f.runs.young == nil || len(f.runs.young) == maxRuns {
		f.runs.old, f.runs.young = f.runs.young, map[string]*followed{}
	}
	run := f.runs.old[id]
	if run == nil {
		run = &followed{}
	}
	// A copy of the id: otherwise the id would keep a whole piece of the file in memory.
	f.runs.young[strings.Clone(id)] = run
	return run
}

// scope is a hash of a run's tenant, project and environment.
func (f *follower) scope(r *Record) (sum uint64) {
	for _, text := range [...]string{r.TenantID, r.ProjectID, r.EnvironmentID} {
		sum = sum*31 + maphash.String(f.seed, text)
	}
	return sum
}

// end compares all records with the manifest.
func (f *follower) end() {
	m := f.m
	switch {
	case f.tally.Count != m.Count:
		f.report.fault("the file has %d events, and its manifest says that there are %d", f.tally.Count, m.Count)
	case f.tally.Digest != m.Digest && len(f.report.Faults) == 0:
		f.report.fault("the digest of the events is %s, and the manifest says %s: some were changed together with their own digests, put in another order or replaced, "+
			"or the manifest is of another export", f.tally.Digest, m.Digest)
	}
}

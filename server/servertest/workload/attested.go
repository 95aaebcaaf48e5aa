package workload

import (
	"encoding/json"
	"fmt"
	"sync"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// attested is what is known of attestations.
type attested struct {
	mu    sync.Mutex
	runs  []attestedRun
	acked map[eventName]uint64 // the runSeq of each attestation, by its id
}

// attestedRun is a run whose steps are attested.
type attestedRun struct{ id, tenant string }

// fails reports whether some attesters say that steps of the run have failed.
func (r attestedRun) fails() bool { return r.id[len(r.id)-1] == '0' }

// draw returns one of the newest runs.
func (a *attested) draw(n int) (run attestedRun, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n >= len(a.runs) {
		return attestedRun{}, false
	}
	return a.runs[len(a.runs)-1-n], true
}

func (a *attested) open(run attestedRun) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.runs = append(a.runs, run)
}

// acknowledge notes the answer to an attestation, and compares it with an earlier one under the
// same id.
func (a *attested) acknowledge(broken broken, id eventName, resp *runlogv1.AttestStepResponse) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.acked == nil {
		a.acked = map[eventName]uint64{}
	}
	before, known := a.acked[id]
	if known && (before != resp.GetRunSeq() || !resp.GetIdempotent()) {
		broken("attestation: %s of %s was answered with runSeq %d, and then with %d: idempotent is %t", id.key, id.run, before, resp.GetRunSeq(), resp.GetIdempotent())
	}
	a.acked[id] = resp.GetRunSeq()
}

// attestedOf checks the attestations in a node's log, in the order of commits: which identity
// attests in which run, and after how many others.
type attestedOf struct {
	attested *attested
	node     string
	broken   broken
	starters map[eventName]bool // identities, by run
	needed   map[stepAttempt]int
	approved map[stepAttempt]map[string]bool
	ended    map[stepAttempt]uint64
	stored   map[eventName]uint64 // by id
}

type stepAttempt struct {
	run, step string
	attempt   uint32
}

func (c *Clients) attestedOf(node string) *attestedOf {
	return &attestedOf{
		attested: &c.attested, node: node, broken: c.opts.Broken, starters: map[eventName]bool{}, needed: map[stepAttempt]int{},
		approved: map[stepAttempt]map[string]bool{}, ended: map[stepAttempt]uint64{}, stored: map[eventName]uint64{},
	}
}

// check checks the next record.
func (n *attestedOf) check(r *runlogv1.EventRecord) {
	if r.GetTenantId() != attestTenant && r.GetTenantId() != selfTenant {
		return
	}
	at := stepAttempt{r.GetRunId(), r.GetStepId(), r.GetLogicalAttemptId()}
	switch r.GetEventType() {
	case contract.StepAttested, contract.StepAttestationApproved:
		n.checkAttestation(r, at)
		return
	case contract.StepWaitingForAttestation:
		var said struct{ Contract struct{ Approvals int } }
		if err := json.Unmarshal(r.GetPayloadJson(), &said); err != nil {
			n.broken("attestation: on %s, a wait of %s: %v", n.node, at.run, err)
		}
		if n.needed[at] == 0 {
			n.needed[at] = said.Contract.Approvals
		}
	}
	if r.GetRunSeq() == 1 || r.GetEventType() == contract.RunQueued || r.GetEventType() == contract.RunStarted {
		n.starters[eventName{at.run, r.GetAppendedBy()}] = true
	}
}

func (n *attestedOf) checkAttestation(r *runlogv1.EventRecord, at stepAttempt) {
	fault := func(format string, args ...any) {
		n.broken("attestation: on %s, %s of %s with runSeq %d, by %s: %s", n.node, r.GetEventType(), at.run, r.GetRunSeq(), r.GetAppendedBy(), fmt.Sprintf(format, args...))
	}
	var said struct{ AttestedBy, Outcome, AttestationID string }
	if err := json.Unmarshal(r.GetPayloadJson(), &said); err != nil {
		fault("%v", err)
		return
	}
	by := r.GetAppendedBy()
	if said.AttestedBy != by {
		fault("it is in the name of %s", said.AttestedBy)
	}
	if r.GetTenantId() != selfTenant && n.starters[eventName{at.run, by}] {
		fault("the same identity has requested or started the run")
	}
	id := eventName{at.run, said.AttestationID}
	if other := n.stored[id]; other != 0 {
		fault("runSeq %d has the same attestationId", other)
	}
	n.stored[id] = r.GetRunSeq()
	if other := n.ended[at]; other != 0 {
		fault("the attempt was attested with runSeq %d", other)
	}
	if n.approved[at] == nil {
		n.approved[at] = map[string]bool{}
	}
	if n.approved[at][by] && said.Outcome == runlogv1.AttestationOutcome_SUCCESS.String() {
		fault("the identity has approved the attempt before")
	}
	n.approved[at][by] = true
	if r.GetEventType() == contract.StepAttestationApproved {
		return
	}
	n.ended[at] = r.GetRunSeq()
	if have := len(n.approved[at]); have < n.needed[at] && said.Outcome == runlogv1.AttestationOutcome_SUCCESS.String() {
		fault("it is the approval of %d attesters, and the contract asks for %d", have, n.needed[at])
	}
}

// end requires that each attestation that was acknowledged is there.
func (n *attestedOf) end() {
	for id, seq := range n.attested.acked {
		if n.stored[id] != seq {
			n.broken("attestation: on %s, %s of %s was acknowledged with runSeq %d, and has runSeq %d", n.node, id.key, id.run, seq, n.stored[id])
		}
	}
}

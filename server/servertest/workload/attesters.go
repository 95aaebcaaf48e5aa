package workload

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest/history"
)

const (
	// attesters is how many identities attest. Contracts ask for up to three of them, so that the
	// requester and the starter of a run are not needed.
	attesters      = 5
	approvalsMost  = 3
	attestTenant   = "tenant-attested"
	selfTenant     = "tenant-self-attested" // whose requesters may attest
	attestedRuns   = 6                      // that are open at a time
	attestAttempts = 2                      // of each step
)

// Attesters starts clients with identities of their own, which request runs, start them, and attest
// steps of their own runs and of others (SEC-10, ATT-4). Each sends some attestations again under
// their ids, over changes of the leader and lost answers. The connections of host carry no
// credentials, and those of admin every right. The caller must call wait.
func (c *Clients) Attesters(ctx context.Context, host, admin string) (wait func(), err error) {
	a, err := c.newGuest(admin)
	if err != nil {
		return nil, err
	}
	all := make([]*attester, attesters)
	for i := range all {
		w, err := c.newGuest(host)
		if err != nil {
			return nil, err
		}
		all[i] = &attester{worker: w, attested: &c.attested}
	}
	return start(func() {
		defer a.close()
		for _, one := range all {
			defer one.close()
		}
		for _, one := range all {
			if !one.identify(ctx, a) {
				return
			}
		}
		if !a.insist(ctx, func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := runlogv1.NewAccessServiceClient(conn).SetTenantLimits(ctx, &runlogv1.SetTenantLimitsRequest{
				TenantId: selfTenant, Limits: &runlogv1.TenantLimits{SelfAttestation: runlogv1.SelfAttestation_ALLOWED},
			})
			return err
		}) {
			return
		}
		var working sync.WaitGroup
		for i, one := range all {
			one.other = all[(i+1)%attesters]
			working.Go(func() { one.work(ctx) })
		}
		working.Wait()
	}), nil
}

// attester is one identity.
type attester struct {
	*worker
	attested *attested
	identity string
	token    Bearer
	other    *attester
}

func (a *attester) identify(ctx context.Context, admin *worker) (ok bool) {
	a.token, a.identity, ok = admin.token(ctx, a.host, []string{attestTenant, selfTenant},
		[]string{contract.RunQueued, contract.StepAttested, contract.StepAttestationApproved}, runlogv1.Role_PRODUCER, runlogv1.Role_ATTESTER)
	return ok
}

func (a *attester) work(ctx context.Context) {
	for ; ctx.Err() == nil; pause(ctx, time.Duration(a.rng.ExpFloat64()*float64(4*a.clients.opts.Think))) {
		run, ok := a.attested.draw(a.rng.IntN(attestedRuns))
		switch n := a.rng.IntN(10); {
		case !ok || n == 0:
			a.open(ctx)
		case n == 1:
			a.append(ctx, a.other, run, a.waiting(run, uint32(1+a.rng.IntN(attestAttempts))))
		default:
			a.attest(ctx, run)
		}
	}
}

// open makes a run, with one of the calls that do so, and has the same identity or another start
// it.
func (a *attester) open(ctx context.Context) {
	run := attestedRun{id: history.QueuedRuns + "attested-" + strconv.Itoa(a.clients.next()), tenant: attestTenant}
	if a.rng.IntN(4) == 0 {
		run.tenant = selfTenant
	}
	noted := a.event(run, "Noted", "", 1)
	starter := a
	if a.rng.IntN(2) == 0 {
		starter = a.other
	}
	ok := false
	switch a.rng.IntN(3) {
	case 0:
		ok = a.insist(a.token.in(ctx), func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := runlogv1.NewQueueServiceClient(conn).RequestRun(ctx, &runlogv1.RequestRunRequest{
				RunRequestId: run.id, RunId: run.id, TenantId: run.tenant, ProjectId: queueProject, EnvironmentId: queueEnvironment, Queue: "attested",
				PlanRef: &runlogv1.PlanRef{PlanId: queuePlan, PlanVersion: queuePlanVersion},
			})
			return err
		})
	case 1:
		ok = a.insist(a.token.in(ctx), func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := runlogv1.NewRunServiceClient(conn).CreateRun(ctx, &runlogv1.CreateRunRequest{
				Run: &runlogv1.Run{RunId: run.id, TenantId: run.tenant, ProjectId: queueProject, EnvironmentId: queueEnvironment,
					PlanRef: &runlogv1.PlanRef{PlanId: queuePlan, PlanVersion: queuePlanVersion}},
				Events: []*runlogv1.EventWrite{noted},
			})
			return err
		})
	default:
		ok = a.append(ctx, a, run, noted)
	}
	if ok && a.append(ctx, starter, run, a.event(run, contract.RunStarted, "", 1), a.waiting(run, 1), a.waiting(run, 1)) {
		a.attested.open(run)
	}
}

// event makes an event of a run.
func (a *attester) event(run attestedRun, kind, step string, attempt uint32) *runlogv1.EventWrite {
	return &runlogv1.EventWrite{
		RunId: run.id, EventId: newID(a.rng), EventType: kind, StepId: step, TenantId: run.tenant, ProjectId: queueProject, EnvironmentId: queueEnvironment,
		PlanId: queuePlan, PlanVersion: queuePlanVersion, LogicalAttemptId: attempt, EngineAttemptId: 1, EmittedAt: timestamppb.Now(),
	}
}

// waiting makes the wait of an attempt of a step for as many attesters as is drawn.
func (a *attester) waiting(run attestedRun, attempt uint32) *runlogv1.EventWrite {
	e := a.event(run, contract.StepWaitingForAttestation, a.step(), attempt)
	e.PayloadForm = &runlogv1.EventWrite_PayloadJson{
		PayloadJson: fmt.Appendf(nil, `{"contract":{"executor":"farm","approvals":%d}}`, 1+a.rng.IntN(approvalsMost)),
	}
	return e
}

func (a *attester) step() string { return string("ab"[a.rng.IntN(2)]) }

// append appends as an identity until that succeeds or ctx ends.
func (a *attester) append(ctx context.Context, as *attester, run attestedRun, events ...*runlogv1.EventWrite) bool {
	return a.insist(as.token.in(ctx), func(ctx context.Context, conn *grpc.ClientConn) error {
		_, err := runlogv1.NewEventServiceClient(conn).AppendEvents(ctx, &runlogv1.AppendEventsRequest{RunId: run.id, Events: events})
		return err
	})
}

// attest attests a step, and again under the same id while the outcome is unknown. Each identity
// has two ids for an attempt of a step, and says the same under each.
func (a *attester) attest(ctx context.Context, run attestedRun) {
	attempt, step := uint32(1+a.rng.IntN(attestAttempts)), a.step()
	number := a.rng.IntN(2)
	req := &runlogv1.AttestStepRequest{
		RunId: run.id, StepId: step, LogicalAttemptId: &attempt, Outcome: runlogv1.AttestationOutcome_SUCCESS,
		AttestationId: fmt.Sprintf("%s-%s-%d-%d", a.identity, step, attempt, number),
	}
	if number == 1 && run.fails() {
		req.Outcome = runlogv1.AttestationOutcome_FAIL
	}
	inName := a.rng.IntN(10) == 0
	if inName {
		req.AttestedBy, req.AttestationId = a.other.identity, req.AttestationId+"-for"
	}
	a.insist(a.token.in(ctx), func(ctx context.Context, conn *grpc.ClientConn) error {
		resp, err := runlogv1.NewSignalServiceClient(conn).AttestStep(ctx, req)
		switch {
		case err != nil && outcome(err).Status == history.Refused:
			return nil
		case err != nil:
			return err
		case inName:
			a.clients.opts.Broken("attestation: %s has attested a step of %s in the name of %s", a.identity, run.id, req.AttestedBy)
		default:
			a.attested.acknowledge(a.clients.opts.Broken, eventName{run.id, req.AttestationId}, resp)
		}
		return nil
	})
}

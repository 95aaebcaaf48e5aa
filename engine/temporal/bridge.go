package temporal

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"runlog/client"
	"runlog/client/watcher"
	"runlog/engine"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// Tokens keep the place of a Bridge in the log. It survives the process.
type Tokens interface {
	// Load returns the token that was stored last; empty: there is none.
	Load(ctx context.Context) (string, error)
	Store(ctx context.Context, token string) error
}

// Bridge hands the signals that the log accepts over to the workflows of an Engine (SIG-6). Any
// number of bridges may have the same runs: a bell that rings twice does no harm.
type Bridge struct {
	Engine *Engine
	Client *client.Client
	// Filter says whose runs these are: its Tenant, Project and Environment.
	Filter watcher.Filter
	// Tokens keep the place. nil: each start of the bridge rings the bells of all runs that go on.
	Tokens Tokens
}

const (
	minRetry, maxRetry = 100 * time.Millisecond, 5 * time.Second
	// storeEvery bounds how often a token is stored. What comes twice after a kill does no harm.
	storeEvery = time.Second
)

// Run rings bells until ctx ends. What cannot be delivered now is tried again.
func (b *Bridge) Run(ctx context.Context) {
	filter := b.Filter
	filter.Types = []string{contract.SignalAccepted}
	wait := minRetry
	for begun := false; ctx.Err() == nil; {
		err := b.load(ctx, &filter, &begun)
		for err == nil {
			progress := filter.Resume
			err = b.watch(ctx, &filter)
			if filter.Resume != progress {
				wait = minRetry
			}
		}
		if ctx.Err() != nil {
			return
		}
		if hasReason(err, client.ReasonResumeTokenInvalid) {
			filter.Resume, begun = "", false
			if b.Tokens != nil { // That of a cluster before a restore is refused forever.
				err = errors.Join(err, b.Tokens.Store(ctx, ""))
			}
		}
		b.Engine.o.Logger.WarnContext(ctx, "cannot hand signals over; retrying", "wait", wait, "err", err)
		if !pause(ctx, wait) {
			return
		}
		wait = min(2*wait, maxRetry)
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// load finds the place of the bridge. Without one it begins now, and then rings for all runs that
// go on: their workflows look for signals from before.
func (b *Bridge) load(ctx context.Context, filter *watcher.Filter, begun *bool) error {
	if *begun || filter.Resume != "" {
		return nil
	}
	if b.Tokens != nil {
		token, err := b.Tokens.Load(ctx)
		if err != nil {
			return err
		}
		if filter.Resume = token; token != "" {
			*begun = true
			return nil
		}
	}
	req := &runlogv1.ListRunsRequest{TenantId: filter.Tenant, ProjectId: filter.Project, EnvironmentId: filter.Environment, Status: engine.OpenStatuses()}
	for run, err := range b.Client.ListRuns(ctx, req) {
		if err != nil {
			return err
		}
		if err := b.ring(ctx, run.GetEngineRunRef(), Signal{Seq: anySeq}); err != nil {
			return err
		}
	}
	*begun = true
	return nil
}

// watch rings for each signal that the log accepts.
func (b *Bridge) watch(ctx context.Context, filter *watcher.Filter) error {
	var stored time.Time
	for e, err := range watcher.Select(ctx, b.Client, *filter) {
		if err != nil {
			return err
		}
		run, err := b.Client.GetRun(ctx, &runlogv1.GetRunRequest{RunId: e.GetRunId()})
		if err == nil {
			err = b.ring(ctx, run.GetEngineRunRef(), signalOf(e.EventRecord))
		}
		if err != nil {
			return err
		}
		if e.ResumeToken == "" {
			continue
		}
		filter.Resume = e.ResumeToken
		if b.Tokens != nil && time.Since(stored) >= storeEvery {
			stored = time.Now()
			if err := b.Tokens.Store(ctx, e.ResumeToken); err != nil {
				return err
			}
		}
	}
	return errors.New("temporal: the watch of signals has ended")
}

// ring signals the workflow of a run. A run that has none here, because it is another engine's or
// has not started, reads the log when it starts.
func (b *Bridge) ring(ctx context.Context, ref string, s Signal) error {
	err := b.Engine.ring(ctx, ref, s)
	if errors.Is(err, engine.ErrNoRun) {
		return nil
	}
	return err
}

// signalOf is what the bell says of a signal. The workflow reads the rest in the log.
func signalOf(r *runlogv1.EventRecord) Signal {
	var p struct {
		SignalType string `json:"signalType"`
	}
	body := r.GetPayloadJson()
	if structured := r.GetPayload(); structured != nil {
		body, _ = structured.MarshalJSON()
	}
	_ = json.Unmarshal(body, &p) // That of another producer may say no type.
	return Signal{ID: r.GetCausedBySignalId(), Type: p.SignalType, StepID: r.GetStepId(), Seq: r.GetRunSeq()}
}

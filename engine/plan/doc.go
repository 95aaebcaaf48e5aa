// Package plan reads the plans of runs: references to them, their download, and their steps
// (PLAN-1 to PLAN-6). It knows no engine.
//
//	ref, err := plan.ParseRef(body)              // or plan.RefOf(run)
//	f, err := plan.NewFetcher(plan.FetcherOptions{Source: blobs})
//	p, err := f.Fetch(ctx, ref)                  // the bytes are those of the reference
//	w := plan.NewWalk(p)
//	for d, ok := w.Next(); ok; d, ok = w.Next() { ... w.Done(step, result) }
//
// # Errors
//
// Each error about a plan is a Failure: it has the code that the events of a run have, and says
// whether the same call may succeed later.
//
// # The walk
//
// A step is decided once every step that it depends on has ended: it runs, waits for an
// attestation, or is skipped. Of the steps that can be decided, the first one in the plan comes
// first. So the same plan and the same results give the same decisions in the same order (PLAN-5).
package plan

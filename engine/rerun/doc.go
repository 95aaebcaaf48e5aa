// Package rerun takes over, in a run that reruns another one, the outputs of the steps that have
// succeeded there (SIG-7). Every engine that does so uses this package, between the start of a run
// and its first step:
//
//	source := rerun.Source{Log: client, Blobs: blobs}
//	err := source.TakeOver(ctx, run, state, plan, func(id string, payload json.RawMessage) error {
//		// Append the StepCompleted of the first attempt, unless the log has an event of the step.
//	})
//
// The log is the only memory: an engine that was killed calls TakeOver again, which goes on behind
// the steps that are taken over already. Once a step has begun, it takes over nothing more.
package rerun

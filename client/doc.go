// Package client talks to a runlog server over gRPC for the command line and for Go programs.
//
//	c, err := client.Dial("host1:7410,host2:7410,host3:7410", client.Options{})
//	defer c.Close()
//	res, err := c.AppendEvents(ctx, &runlogv1.AppendEventsRequest{RunId: run, Events: events})
//
// # Life of a call
//
//	call ──▶ one try ──▶ answer
//	           ▲   │ refused for now (UNAVAILABLE, RESOURCE_EXHAUSTED), or the outcome is unknown
//	           │   ▼
//	           └─ wait: the server's RetryInfo, else doubling backoff; with jitter
//
// Every call may be repeated: reads change nothing, and an append is deduplicated by its
// idempotency keys, so the client repeats a call with an unknown outcome unchanged (APP-10). The
// context, Options.Timeout and Options.MaxAttempts bound the retries. The call returns the last
// failure at the first of these limits, or at once if the next wait would pass it.
//
// With several addresses, a try that ended UNAVAILABLE is followed by one at the next address. Any
// node accepts any call. Appends go straight to the leader once a node has named it, and back to
// the list after a failure.
//
// Streams (ReadEvents, WatchRun, WatchRuns) resume after the last delivered message: the caller
// sees no repetition and no gap.
//
// Every failed call returns an *Error; take it with errors.As.
package client

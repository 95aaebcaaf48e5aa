// Package api is a client of Conductor's HTTP API, with the calls that an adapter needs (ENG-1).
// The workers of the published SDK cannot be stopped, and its requests ignore their contexts.
//
//	c, err := api.New(api.Options{URL: "http://conductor:8080"})
//	id, err := c.Start(ctx, api.StartRequest{Name: "runlog", CorrelationID: runID})
//	tasks, err := c.Poll(ctx, "tq-control-prod", "worker-1", 10, 2*time.Second)
//
// # Tries
//
// Each call but Start is tried again after a failure of the network, and after the statuses 429 and
// 5xx. Start is tried once: Conductor makes another workflow for each start, also for one with a
// correlation id that it knows. The caller looks for what an earlier start has made.
//
// Conductor answers 500 to a resume of a workflow that is not paused. So the caller of Resume reads
// the status of the workflow after an error.
//
// # Bounds
//
// A call lasts at most Attempts tries of Timeout each, and some seconds between them. An answer has
// at most MaxAnswer bytes. Redirects are not followed, so the value of X-Authorization goes to the
// configured address alone. It is in no error.
package api

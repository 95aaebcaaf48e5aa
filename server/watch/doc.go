// Package watch serves the part of ProjectionService that streams: watermarks, snapshots and events
// of one run (WATCH-1), and watermarks of many runs (WATCH-2).
//
//	projector ── new snapshot ──► dispatcher ──► watermarks, snapshots of one run, conflated
//	          ── subscription ──► the call's own goroutine ──► events of one run, marks of many
//
// A watch subscribes before it reads the state of the run: events may repeat, none is lost.
//
// New starts the dispatcher. Close stops it; all calls must have ended.
package watch

package raft

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"runlog/storage"
	"runlog/storage/storagetest"
	"runlog/storage/storagetest/stories"
)

// replicated is a store behind a node: the proposals of package storagetest go through the log.
type replicated struct{ *bed }

var _ storagetest.System = replicated{}

func (r replicated) Propose(clock int64, requests []storagetest.Request) ([]storage.Outcome, error) {
	data, err := storagetest.Seal(storagetest.Cluster, clock, requests)
	if err != nil {
		return nil, err
	}
	f, err := propose(r.node, data)
	if err != nil {
		return nil, err
	}
	return waitFor(r.t, f)
}

func (r replicated) Run(runID string) (*storage.Run, error) { return r.store.Run(runID) }

func (r replicated) Events(runID string, after uint64) ([]storage.Record, error) {
	return storagetest.ReadRun(r.store, runID, after)
}

func (r replicated) Log(after storage.Position) ([]storage.Commit, error) {
	return storagetest.ReadLog(r.store, after)
}

func (r replicated) Applied() storage.Applied { return r.store.Applied() }

// Reopen loses the power, so that the log has to bring everything back.
func (r replicated) Reopen() error {
	r.crash()
	r.start()
	return nil
}

func (r replicated) Close() error {
	r.stop()
	return nil
}

// TestConformance runs the contract's examples against a store behind the log, with a power loss at
// each restart (APP-1 to APP-6, APP-11, APP-12, IDM-6 to IDM-8, D2).
func TestConformance(t *testing.T) {
	stories.Tell(t, func(t rapid.TB) storagetest.System {
		b := newBed(t.(*testing.T))
		b.opts.ElectionTimeout = 10 * time.Millisecond
		return replicated{b.start()}
	})
}

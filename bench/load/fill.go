package load

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"time"

	"runlog/bench/report"
	"runlog/bench/target"
	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/bulk"
)

// Bounds of Fill.
const (
	MaxReceipts  = 1_000_000_000
	MaxRunEvents = report.MaxBatch
	// FillProposal is the number of events in a proposal of a filled store. It is large enough that
	// the log has all proposals in seconds, and small enough that a projector folds no more events
	// at a time than under load.
	FillProposal = 16 << 10
)

// SmallTenant has one run in a hundred of a store that was filled with payloads.
const SmallTenant = "tenant_bench_small"

// Fill describes a data directory with many receipts.
type Fill struct {
	// Receipts is how many events are stored, about.
	Receipts int `json:"receipts"`
	// RunEvents is how many of them each run has.
	RunEvents int `json:"runEvents"`
	// PayloadBytes is about the size of an event's payload; 0: it is empty. With payloads, one run
	// in a hundred is SmallTenant's.
	PayloadBytes int `json:"payloadBytes,omitempty"`
	// Folded says that the projection has all of them, as that of a node has that took them one by
	// one. Otherwise it has none.
	Folded bool `json:"folded,omitempty"`
}

// Validate reports every fault of the description.
func (f *Fill) Validate() error {
	var errs []error
	if f.Receipts < 1 || f.Receipts > MaxReceipts {
		errs = append(errs, fmt.Errorf("bench: receipts is %d, want 1 to %d", f.Receipts, MaxReceipts))
	}
	if f.RunEvents < 1 || f.RunEvents > MaxRunEvents {
		errs = append(errs, fmt.Errorf("bench: run events is %d, want 1 to %d", f.RunEvents, MaxRunEvents))
	}
	if f.PayloadBytes != 0 && (f.PayloadBytes < MinPayloadBytes || f.PayloadBytes > MaxPayloadBytes) {
		errs = append(errs, fmt.Errorf("bench: payload is %d bytes, want 0, or %d to %d", f.PayloadBytes, MinPayloadBytes, MaxPayloadBytes))
	}
	return errors.Join(errs...)
}

// Runs is how many runs are stored.
func (f *Fill) Runs() int { return (f.Receipts + f.RunEvents - 1) / f.RunEvents }

// filledFile records, in a data directory, the Fill that made it: it is written last.
const filledFile = "filled.json"

// FillDataDir makes the data directory data with the program binary, and fills it. A node commits
// the needed number of proposals and stops; then runs are written directly into its store. progress
// gets the number of stored events. A directory that the same Fill has filled stays unchanged.
func (f *Fill) FillDataDir(ctx context.Context, binary, data string, progress func(events int)) error {
	if err := f.Validate(); err != nil {
		return err
	}
	path := filepath.Join(data, filledFile)
	if text, err := os.ReadFile(path); err == nil {
		var was Fill
		if err := json.Unmarshal(text, &was); err != nil || was != *f {
			return fmt.Errorf("bench: %s was filled with %d receipts, %d a run; choose another directory, or remove it", data, was.Receipts, was.RunEvents)
		}
		return nil
	}
	if _, err := os.Stat(data); err == nil {
		return fmt.Errorf("bench: %s exists and was not filled by the bench; choose another directory", data)
	}
	if err := f.commitProposals(ctx, binary, data); err != nil {
		return err
	}
	if err := f.fillStore(ctx, data, progress); err != nil {
		return err
	}
	if f.Folded {
		if err := foldAll(ctx, binary, data); err != nil {
			return err
		}
	}
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// commitProposals lets a node commit one small append after the other, each a proposal of its own.
func (f *Fill) commitProposals(ctx context.Context, binary, data string) error {
	return withNode(ctx, binary, data, func(n *target.Node) error {
		call := AppendFrom(n, NewHistories(NewSession(MinPayloadBytes, FillText(MinPayloadBytes)), 1, 0))
		for range f.Receipts/FillProposal + 2 {
			if _, err := call(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// withNode starts a node on a data directory, lets do work with it, and stops it.
func withNode(ctx context.Context, binary, data string, do func(*target.Node) error) (err error) {
	dir, err := os.MkdirTemp(filepath.Dir(data), "runlog-fill-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	n, err := target.StartNode(ctx, target.NodeOptions{Binary: binary, Dir: dir, Data: data})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	return do(n)
}

// fillStore writes the runs. They are encoded on all processors and added in their order.
func (f *Fill) fillStore(ctx context.Context, data string, progress func(events int)) (err error) {
	cluster, err := clusterOf(data)
	if err != nil {
		return err
	}
	text := FillText(f.PayloadBytes)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	store, err := bulk.Open(storage.Options{Dir: filepath.Join(data, "store"), Cluster: cluster, Fail: cancel}, FillProposal)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	type encoded struct {
		command storage.Command
		err     error
	}
	// A place in the queue for each run on its way; the channel in it gets the run.
	queue := make(chan chan encoded, 4*runtime.GOMAXPROCS(0))
	var encoders sync.WaitGroup
	defer encoders.Wait()
	defer cancel(nil)
	encoders.Go(func() {
		defer close(queue)
		slots := make(chan struct{}, runtime.GOMAXPROCS(0))
		for run := range f.Runs() {
			ready := make(chan encoded, 1)
			select {
			case queue <- ready:
			case <-ctx.Done():
				return
			}
			slots <- struct{}{}
			encoders.Go(func() {
				defer func() { <-slots }()
				c, err := storage.EncodeAppend(&storage.Append{RunID: StoredRun(run), Events: f.events(text, run)})
				ready <- encoded{c, err}
			})
		}
	})
	added := 0
	for ready := range queue {
		e := <-ready
		if e.err == nil {
			e.err = store.Add(e.command)
		}
		if e.err != nil {
			return e.err
		}
		if added += f.RunEvents; progress != nil && added%(1<<16) < f.RunEvents {
			progress(added)
		}
	}
	return context.Cause(ctx)
}

// foldLimit bounds how long the projection of a filled store may take.
const foldLimit = time.Hour

// foldAll lets a node fold all events of a filled store.
func foldAll(ctx context.Context, binary, data string) error {
	if err := os.RemoveAll(filepath.Join(data, "projection")); err != nil {
		return err
	}
	return withNode(ctx, binary, data, func(n *target.Node) error {
		_, err := target.AwaitProjection(ctx, n, foldLimit)
		return err
	})
}

// clusterOf reads a data directory's identity.
func clusterOf(data string) (storage.ClusterID, error) {
	text, err := os.ReadFile(filepath.Join(data, "identity.json"))
	if err != nil {
		return storage.ClusterID{}, err
	}
	var identity struct{ ClusterID string }
	if err := json.Unmarshal(text, &identity); err != nil {
		return storage.ClusterID{}, fmt.Errorf("bench: identity of %s: %w", data, err)
	}
	id, err := hex.DecodeString(identity.ClusterID)
	if err != nil || len(id) != len(storage.ClusterID{}) {
		return storage.ClusterID{}, fmt.Errorf("bench: identity of %s: bad clusterId %q", data, identity.ClusterID)
	}
	return storage.ClusterID(id), nil
}

// StoredRun is the id of a filled store's n-th run.
func StoredRun(n int) string { return fmt.Sprintf("run_stored_%010d", n) }

// events of a run.
func (f *Fill) events(text string, run int) []contract.Event {
	events := storedEvents(run, f.RunEvents)
	if f.PayloadBytes == 0 {
		return events
	}
	for i := range events {
		if run%100 == 99 {
			events[i].TenantID = SmallTenant
		}
		// Pieces of the text that seldom repeat.
		at := (run*f.RunEvents + i) * 7919 % textBytes
		events[i].Payload = fmt.Appendf(nil, `{"log":"%s"}`, text[at:at+f.PayloadBytes])
	}
	return events
}

// storedEvents are as small as events can be: it is their receipts that count.
func storedEvents(run, n int) []contract.Event {
	id := StoredRun(run)
	events := make([]contract.Event, n)
	for i := range events {
		e := &events[i]
		*e = contract.Event{
			Type: "StepStarted", RunID: id, TenantID: "tenant_bench_" + strconv.Itoa(run%tenants), ProjectID: "proj_marketing", EnvironmentID: "prod",
			PlanID: planID, PlanVersion: planVersion, StepID: stepID(i), LogicalAttemptID: 1, EngineAttemptID: 1,
			EmittedAt: storedMillis * 1e6, KeyDerived: true, Payload: []byte("{}"),
		}
		binary.BigEndian.PutUint64(e.EventID[:8], storedMillis<<16|7<<12)
		binary.BigEndian.PutUint64(e.EventID[8:], 1<<63|uint64(run)<<16|uint64(i))
		e.IdempotencyKey = contract.DeriveKey(e.Contract, e.RunID, e.StepID, e.LogicalAttemptID, e.EngineAttemptID, e.Type, e.PlanID, e.PlanVersion)
	}
	return events
}

// storedMillis is when producers made the stored events: at the beginning of 2026.
const storedMillis = 1_767_225_600_000

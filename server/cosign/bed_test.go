package cosign

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/mod/sumdb/tlog"

	"runlog/audit/policy"
	"runlog/audit/proof"
	"runlog/audit/witness"
	"runlog/server/replica"
	"runlog/storage"
	"runlog/storage/machine/signing"
	"runlog/storage/storagetest"
)

// bed is a node with a log of records that are made of their numbers, and of the witnesses that it
// asks.
type bed struct {
	t      testing.TB
	signer *proof.Signer
	store  *storagetest.Local
	opts   Options
	alerts replica.Alerts
	leads  atomic.Bool

	mu      sync.Mutex
	index   uint64
	stored  []tlog.Hash
	size    int64
	covered storage.Position // of the newest checkpoint
	ahead   func()           // is called by ReadIndex
	lost    error            // of proposals
}

func newBed(t testing.TB) *bed {
	t.Helper()
	b := &bed{t: t, index: 10}
	b.leads.Store(true)
	var err error
	if b.signer, err = proof.NewSigner(storagetest.Cluster, [32]byte{1}); err != nil {
		t.Fatal(err)
	}
	if b.store, err = storagetest.Open(storage.Options{FS: vfs.NewMem()}); err != nil {
		t.Fatal(err)
	}
	b.opts = Options{
		Store: b.store.Store, Leading: b.leads.Load, Propose: b.propose, Alerts: &b.alerts, Registry: prometheus.NewRegistry(),
		Transport: handlers{}, Logger: slog.New(slog.DiscardHandler),
		ReadIndex: func(context.Context) error {
			b.mu.Lock()
			ahead := b.ahead
			b.mu.Unlock()
			if ahead != nil {
				ahead()
			}
			return nil
		},
		Prove: func(_ context.Context, earlier, later uint64) ([]tlog.Hash, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			return proof.ProveConsistency(int64(earlier), int64(later), b)
		},
	}
	return b
}

func (b *bed) start() {
	b.t.Helper()
	c := New(b.opts)
	b.t.Cleanup(func() {
		if err := errors.Join(c.Close(), b.store.Close()); err != nil {
			b.t.Error(err)
		}
		if s := b.alerts.Standing(); len(s) > 0 {
			b.t.Errorf("alerts %v of a closed node", s)
		}
	})
}

// ReadHashes implements tlog.HashReader. The caller holds mu.
func (b *bed) ReadHashes(indexes []int64) (out []tlog.Hash, err error) {
	for _, i := range indexes {
		out = append(out, b.stored[i])
	}
	return out, nil
}

// growLocked adds records to the tree.
func (b *bed) growLocked(n int64) {
	b.t.Helper()
	for end := b.size + n; b.size < end; b.size++ {
		hashes, err := tlog.StoredHashes(b.size, binary.BigEndian.AppendUint64(nil, uint64(b.size)), b)
		if err != nil {
			b.t.Fatal(err)
		}
		b.stored = append(b.stored, hashes...)
	}
}

// checkpoint adds records and stores a signed checkpoint.
func (b *bed) checkpoint(records int64) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.growLocked(records)
	c := signing.Checkpoint{Position: storage.Position(b.index), Follows: b.covered, Note: b.noteLocked(b.store.Store.Incarnation())}
	b.covered = c.Position
	cmd, err := storage.EncodeOne(signing.StoreCheckpoint(c))
	if err != nil {
		b.t.Fatal(err)
	}
	if o, err := b.applyLocked(cmd); errors.Join(err, o.Err) != nil {
		b.t.Fatal(err, o.Err)
	}
}

func (b *bed) noteLocked(in storage.Incarnation) string {
	b.t.Helper()
	root, err := tlog.TreeHash(b.size, b)
	if err != nil {
		b.t.Fatal(err)
	}
	note, err := b.signer.SignCheckpoint(&proof.Checkpoint{
		Cluster: storagetest.Cluster, Incarnation: in, Size: uint64(b.size), Root: root, Position: b.index, CompleteThrough: b.size,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return note
}

func (b *bed) propose(_ context.Context, c storage.Command) (storage.Outcome, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lost != nil {
		return storage.Outcome{}, b.lost
	}
	return b.applyLocked(c)
}

func (b *bed) applyLocked(c storage.Command) (storage.Outcome, error) {
	b.index++
	p := storage.NewProposal(storagetest.Cluster, c.Size())
	p.Add(c)
	outcomes, err := b.store.Store.Apply(b.index, 1, p.Seal(int64(b.index)))
	if err != nil {
		return storage.Outcome{}, err
	}
	return outcomes[0], nil
}

// newest returns the newest checkpoint with the number of its verified signatures of witnesses.
func (b *bed) newest(keys ...*proof.WitnessKey) (signing.Checkpoint, int) {
	b.t.Helper()
	c, err := signing.LastCheckpoint(b.store.Store)
	if err != nil {
		b.t.Fatal(err)
	}
	found, err := proof.Cosignatures(c.Signed(), keys...)
	if err != nil {
		b.t.Fatal(err)
	}
	return c, len(found)
}

func (b *bed) requests(name, result string) int {
	b.t.Helper()
	for _, m := range must(b.opts.Registry.Gather()) {
		if m.GetName() != "runlog_witness_requests_total" {
			continue
		}
		for _, v := range m.GetMetric() {
			if l := v.GetLabel(); l[0].GetValue() == result && l[1].GetValue() == name {
				return int(v.GetCounter().GetValue())
			}
		}
	}
	return 0
}

// shown is the value of a gauge with one witness.
func (b *bed) shown(name string) float64 {
	b.t.Helper()
	for _, m := range must(b.opts.Registry.Gather()) {
		if m.GetName() == name && len(m.GetMetric()) == 1 {
			return m.GetMetric()[0].GetGauge().GetValue()
		}
	}
	b.t.Fatalf("no gauge %s of one witness", name)
	return 0
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// host is a witness behind the transport of a bed: a handler that a test can exchange.
type host struct {
	witness *witness.Witness
	key     *proof.WitnessKey

	mu      sync.Mutex
	handler http.Handler
}

func (h *host) set(handler http.Handler) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handler = handler
}

// witness adds a witness with a state of its own to those that the bed asks.
func (b *bed) witness(name string, seed byte) *host {
	b.t.Helper()
	cosigner := must(proof.NewCosigner(name+".example", [32]byte{seed}))
	h := &host{key: cosigner.Key()}
	h.witness = must(witness.New(witness.Options{
		Cosigner: cosigner, Logs: []string{b.signer.PublicKey()}, State: filepath.Join(b.t.TempDir(), "state"), Clock: time.Now, Logger: b.opts.Logger,
	}))
	b.t.Cleanup(func() {
		if err := h.witness.Close(); err != nil {
			b.t.Error(err)
		}
	})
	h.handler = h.witness
	b.opts.Transport.(handlers)[name] = h
	b.opts.Witnesses = append(b.opts.Witnesses, policy.Endpoint{Name: name, Key: h.key, URL: "http://" + name})
	return h
}

// handlers is a transport to handlers by host.
type handlers map[string]*host

func (h handlers) RoundTrip(r *http.Request) (*http.Response, error) {
	at := h[r.URL.Host]
	at.mu.Lock()
	handler := at.handler
	at.mu.Unlock()
	if handler == nil {
		return nil, errors.New("no route to host")
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return w.Result(), nil
}

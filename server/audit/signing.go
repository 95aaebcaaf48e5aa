package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/mod/sumdb/tlog"

	"runlog/audit/proof"
	"runlog/projector/tree"
	"runlog/server/checkpoint"
	"runlog/server/cluster"
	"runlog/server/replica"
	"runlog/storage"
)

const (
	// alertKeyMissing is raised while no member has the signing key, so that nothing can be signed.
	alertKeyMissing = "AUDIT_KEY_MISSING"
	// keyPatience is how long a signature waits for a key that may still arrive.
	keyPatience = 5 * time.Second
	keyRetry    = 100 * time.Millisecond
)

// SignerOptions configure a Signer. All are required.
type SignerOptions struct {
	Replica *replica.Replica
	Cluster *cluster.Cluster
	Records Records
	// KeyFile is the path of the private key.
	KeyFile string
	FS      vfs.FS
	// Interval and Events are the time and the number of events after which the next checkpoint is
	// signed. With a negative interval the node makes checkpoints and keys on request only.
	Interval time.Duration
	Events   uint64
	Alerts   *replica.Alerts
	Clock    func() time.Time
	Logger   *slog.Logger
	Registry *prometheus.Registry
	// Stopping ends when the node's shutdown begins.
	Stopping context.Context
}

// Signer signs with the cluster's key. It owns the key and the signed checkpoints.
type Signer struct {
	opts        SignerOptions
	checkpoints *checkpoint.Maker
	raised      prometheus.Counter
	gone        atomic.Bool // AUDIT_KEY_MISSING is raised.
}

// NewSigner starts the maintenance of the key and of the checkpoints.
func NewSigner(opts SignerOptions) *Signer {
	s := &Signer{opts: opts, raised: prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "runlog", Subsystem: "audit", Name: "key_missing_alerts_total",
		Help: "Times that AUDIT_KEY_MISSING was raised.",
	})}
	opts.Registry.MustRegister(s.raised)
	r := opts.Replica
	s.checkpoints = checkpoint.New(checkpoint.Options{
		Store: r.Store(), Cluster: r.ClusterID(), KeyFile: opts.KeyFile, FS: opts.FS,
		Interval: opts.Interval, Events: opts.Events, Records: s.records,
		Leading: r.Leading, Propose: r.Submit, Members: s.members,
		Fetch: opts.Cluster.FetchSigningKey, Give: s.give, Missing: s.missing,
		Clock: opts.Clock, Logger: opts.Logger,
	})
	return s
}

// Close stops the work on checkpoints.
func (s *Signer) Close() error {
	err := s.checkpoints.Close()
	s.opts.Registry.Unregister(s.raised)
	return err
}

// Sign returns a statement as a note with the cluster's signature. While the node lacks the key,
// the note has no signature.
func (s *Signer) Sign(ctx context.Context, st *proof.Statement) (note string, signed bool, err error) {
	err = s.awaitKey(ctx, func() error {
		var err error
		if note, signed, err = s.checkpoints.Sign(ctx, st); err == nil && !signed {
			return checkpoint.ErrKeyMissing
		}
		return err
	})
	if errors.Is(err, checkpoint.ErrKeyMissing) {
		err = nil
	}
	return note, signed, err
}

// awaitKey calls do, which needs the signing key. It calls do again for keyPatience while the key
// is missing, unless no member has the key. A new cluster has no key yet, and a restarted or new
// leader may not have it at once.
func (s *Signer) awaitKey(ctx context.Context, do func() error) error {
	again := time.NewTicker(keyRetry)
	defer again.Stop()
	for until := time.Now().Add(keyPatience); ; {
		err := do()
		if !errors.Is(err, checkpoint.ErrKeyMissing) || s.gone.Load() || s.opts.Interval < 0 || time.Now().After(until) {
			return err
		}
		select {
		case <-again.C:
		case <-s.opts.Stopping.Done():
		case <-ctx.Done():
		}
		// The context may end at the time of a retry.
		if ctx.Err() != nil || s.opts.Stopping.Err() != nil {
			return err
		}
	}
}

// prove ties a run to a signed checkpoint that contains everything acknowledged before the call.
func (s *Signer) prove(ctx context.Context, runID string, fresh bool) (p *checkpoint.Proof, err error) {
	err = s.awaitKey(ctx, func() (err error) {
		if err := s.opts.Replica.Node().ConfirmLeader(ctx); err != nil {
			return err
		}
		p, err = s.checkpoints.Prove(ctx, runID, fresh)
		return err
	})
	return p, err
}

// records implements checkpoint.Options.Records.
func (s *Signer) records(ctx context.Context, at storage.Position, size int64) (root tlog.Hash, err error) {
	err = readTree(ctx, s.opts.Records, at, func(t *tree.Tree) (err error) {
		root, err = t.Root(size)
		return err
	})
	return root, err
}

// Consistency proves that the tree of records of one size continues that of an earlier one (TR-2).
func (s *Signer) Consistency(ctx context.Context, earlier, later uint64) ([]tlog.Hash, error) {
	now := s.opts.Replica.Store().Applied()
	return proveConsistency(ctx, s.opts.Records, now.Position(), earlier, later)
}

func (s *Signer) members() (ids []string) {
	for _, m := range s.opts.Replica.Node().Members() {
		ids = append(ids, m.ID)
	}
	return ids
}

// give implements checkpoint.Options.Give.
func (s *Signer) give(ctx context.Context, number uint64, seed []byte, members []string) error {
	if err := s.opts.Cluster.GiveSigningKey(ctx, number, seed, members); err != nil {
		return fmt.Errorf("%w: %w", checkpoint.ErrNotGiven, err)
	}
	return nil
}

// Seed returns the private key with a number, for another member.
func (s *Signer) Seed(number uint64) ([]byte, bool) { return s.checkpoints.Seed(number) }

// Keep stores a private key that another member is about to propose.
func (s *Signer) Keep(number uint64, seed []byte) error { return s.checkpoints.Keep(number, seed) }

// missing sets AUDIT_KEY_MISSING, and logs when it is raised and when it is cleared.
func (s *Signer) missing(missing bool) {
	switch raised := s.gone.Swap(missing); {
	case missing && !raised:
		s.raised.Inc()
		s.opts.Logger.Error("signing key missing on all members", "alert", alertKeyMissing,
			"do", "start a member that has it, or run: runlog audit rotate-key --old-key-is-lost")
	case !missing && raised:
		s.opts.Logger.Info("signing key found", "alert", alertKeyMissing)
	}
	s.opts.Alerts.Set(alertKeyMissing, missing)
}

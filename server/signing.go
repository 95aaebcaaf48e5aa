package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"runlog/audit/proof"
	"runlog/server/checkpoint"
	"runlog/storage"
)

const (
	// alertKeyMissing is raised while the cluster has a signing key that no member has: nothing can
	// be signed.
	alertKeyMissing = "AUDIT_KEY_MISSING"
	// keyFile of the data directory has the private key with which the cluster signs.
	keyFile = "audit.key"
)

// sign returns a statement as a note that is signed with the cluster's key. While the node does not
// have the key, the note ends before its signatures.
func (s *Server) sign(ctx context.Context, st *proof.Statement) (note string, signed bool, err error) {
	err = s.awaitKey(ctx, func() error {
		var err error
		if note, signed, err = s.sealer.Load().Sign(ctx, st); err == nil && !signed {
			return checkpoint.ErrKeyMissing
		}
		return err
	})
	if errors.Is(err, checkpoint.ErrKeyMissing) {
		err = nil
	}
	return note, signed, err
}

// awaitKey does what needs the signing key, and does it again for keyPatience while the key is
// missing, unless it is known to be gone: a cluster that was founded a moment ago has none yet, and
// who has just been started or become the leader not at once.
func (s *Server) awaitKey(ctx context.Context, do func() error) error {
	again := time.NewTicker(keyRetry)
	defer again.Stop()
	for until := time.Now().Add(keyPatience); ; {
		err := do()
		if !errors.Is(err, checkpoint.ErrKeyMissing) || s.keyGone.Load() || s.opts.CheckpointInterval < 0 || time.Now().After(until) {
			return err
		}
		select {
		case <-again.C:
		case <-s.stopping.Done():
		case <-ctx.Done():
		}
		if ctx.Err() != nil || s.stopping.Err() != nil { // also where it is time to try again
			return err
		}
	}
}

// keyPatience is how long what is to be signed waits for a key of which it is not known that it is
// missing.
const (
	keyPatience = 5 * time.Second
	keyRetry    = 100 * time.Millisecond
)

// openSealer begins to look after the cluster's signing key and its checkpoints.
func (s *Server) openSealer() {
	sealer := checkpoint.New(checkpoint.Options{
		Store: s.store, Cluster: s.clusterID, KeyFile: s.dir.file(keyFile), FS: s.opts.FS,
		Interval: s.opts.CheckpointInterval, Events: s.opts.CheckpointEvents,
		Leading: s.node.Leading, Propose: s.proposeCommand, Members: s.memberIDs,
		Fetch: s.cluster.FetchSigningKey, Give: s.giveSigningKey, Missing: s.keyMissing,
		Clock: s.opts.Clock, Logger: s.log,
	})
	s.sealer.Store(sealer)
	s.onClose(sealer.Close)
}

// proposeCommand puts a command of the node's own into the log.
func (s *Server) proposeCommand(ctx context.Context, cmd storage.Command) (storage.Outcome, error) {
	ticket, err := s.enqueue(cmd)
	if err != nil {
		return storage.Outcome{}, err
	}
	return ticket.Wait(ctx)
}

func (s *Server) memberIDs() (ids []string) {
	for _, m := range s.node.Members() {
		ids = append(ids, m.ID)
	}
	return ids
}

// giveSigningKey is checkpoint.Options.Give.
func (s *Server) giveSigningKey(ctx context.Context, number uint64, seed []byte, members []string) error {
	if err := s.cluster.GiveSigningKey(ctx, number, seed, members); err != nil {
		return fmt.Errorf("%w: %w", checkpoint.ErrNotGiven, err)
	}
	return nil
}

// signingKey gives another member the cluster's key.
func (s *Server) signingKey(number uint64) ([]byte, bool) {
	if sealer := s.sealer.Load(); sealer != nil {
		return sealer.Seed(number)
	}
	return nil, false
}

// keepSigningKey keeps a key that another member is about to propose.
func (s *Server) keepSigningKey(number uint64, seed []byte) error {
	if sealer := s.sealer.Load(); sealer != nil {
		return sealer.Keep(number, seed)
	}
	return errors.New("the node is being started")
}

// keyMissing sets AUDIT_KEY_MISSING, and logs when it begins and when it ends.
func (s *Server) keyMissing(missing bool) {
	switch raised := s.keyGone.Swap(missing); {
	case missing && !raised:
		s.metrics.keyAlerts.Inc()
		s.log.Error("no member has the key with which the cluster signs: exports, backups and checkpoints are not signed. "+
			"Bring back a node that has it, or make a new one: runlog audit rotate-key --old-key-is-lost", "alert", alertKeyMissing)
	case !missing && raised:
		s.log.Info("the key with which the cluster signs is here", "alert", alertKeyMissing)
	}
	s.alerts.set(alertKeyMissing, missing)
}

package checkpoint

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"runlog/audit/proof"
	"runlog/storage"
	"runlog/storage/machine/signing"
)

// tendKey keeps the node's signing key up to date.
func (s *Maker) tendKey() {
	ticker := time.NewTicker(step)
	defer ticker.Stop()
	for {
		if err := s.tend(s.stopping, s.opts.Interval > 0); err != nil && s.stopping.Err() == nil {
			s.log.Warn("cannot load signing key; retrying", "err", err)
		}
		select {
		case <-ticker.C:
		case <-s.stopping.Done():
			return
		}
	}
}

// current returns the signer of the newest key, or ErrKeyMissing with the reason.
func (s *Maker) current(ctx context.Context) (*proof.Signer, error) {
	var tended error
	for try := 0; ; try++ {
		last, err := signing.LastKey(s.opts.Store)
		if err != nil {
			return nil, err
		}
		signer := s.signer.Load()
		switch {
		case signer != nil && signer.PublicKey() == last.PublicKey:
			return signer, nil
		case tended != nil:
			return nil, fmt.Errorf("%w: %w", ErrKeyMissing, tended)
		case try > 0:
			return nil, ErrKeyMissing
		}
		tended = s.tend(ctx, true)
	}
}

// tend makes the newest key that of the signer: from the file, or from another member. If the
// cluster has no key yet, the leader may make one. A key of another cluster id does not count: a
// restored backup has such a key.
func (s *Maker) tend(ctx context.Context, mayMake bool) error {
	if err := s.keys.Lock(ctx); err != nil {
		return err
	}
	defer s.keys.Unlock()
	return s.tendLocked(ctx, mayMake)
}

func (s *Maker) tendLocked(ctx context.Context, mayMake bool) error {
	last, err := signing.LastKey(s.opts.Store)
	if err != nil {
		return err
	}
	if signer := s.signer.Load(); signer != nil && signer.PublicKey() == last.PublicKey {
		return nil
	}
	if !s.own(last) {
		s.signer.Store(nil)
		if mayMake && s.opts.Leading() {
			return s.makeKeyLocked(last.Number+1, nil)
		}
		return nil
	}
	k, ok := s.keys.find(last.Number, last.PublicKey)
	if !ok {
		k, ok = s.fetchLocked(ctx, last)
	}
	s.missedLocked(!ok)
	if !ok {
		s.signer.Store(nil)
		return nil
	}
	return s.useLocked(k)
}

// missedLocked reports the key as missing after a while: a new member gets it with a delay.
func (s *Maker) missedLocked(missed bool) {
	switch now := time.Now(); {
	case !missed:
		s.keys.missedSince = time.Time{}
		s.opts.Missing(false)
	case s.keys.missedSince.IsZero():
		s.keys.missedSince = now
	case now.Sub(s.keys.missedSince) >= missingAfter:
		s.opts.Missing(true)
	}
}

// own reports whether a key belongs to this cluster.
func (s *Maker) own(k signing.Key) bool {
	cluster, ok := proof.ClusterOf(k.PublicKey)
	return k.Number > 0 && ok && cluster == s.opts.Cluster
}

// useLocked signs with a key from now on, and drops earlier keys.
func (s *Maker) useLocked(k heldKey) error {
	if err := s.keys.keep(k); err != nil {
		return err
	}
	s.signer.Store(k.signer)
	return nil
}

// fetchLocked asks other members for the private part of a public key, and keeps it.
func (s *Maker) fetchLocked(ctx context.Context, public signing.Key) (found heldKey, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	s.opts.Fetch(ctx, public.Number, func(seed []byte) bool {
		k, err := s.keys.key(public.Number, seed, nil)
		if err != nil || k.signer.PublicKey() != public.PublicKey {
			s.log.Warn("member sent a signing key of another cluster", "number", public.Number)
			return false
		}
		if err := s.keys.keep(k); err != nil {
			s.log.Error("cannot store signing key", "err", err)
			return false
		}
		found, ok = k, true
		return true
	})
	return found, ok
}

// makeKeyLocked proposes a key. The key before endorses it, if the node has that. A majority has
// the new key on stable storage before the log has its public part, so a lost disk does not lose
// it. Other members fetch it when they see the public part.
func (s *Maker) makeKeyLocked(number uint64, before *heldKey) error {
	k, err := s.newKeyLocked(number)
	if err != nil {
		return err
	}
	if err := s.giveLocked(k); err != nil {
		return fmt.Errorf("signing key %d: %w", number, err)
	}
	public := signing.Key{Number: number, PublicKey: k.signer.PublicKey()}
	if before != nil {
		st := (&proof.SigningKey{Cluster: s.opts.Cluster, Number: number, PublicKey: public.PublicKey}).Statement()
		if public.Endorsement, err = before.signer.Sign(st); err != nil {
			return err
		}
	}
	cmd, err := storage.EncodeOne(signing.StoreKey(public))
	if err != nil {
		return err
	}
	outcome, err := s.opts.Propose(s.stopping, cmd) // no caller gives this up
	if err = errors.Join(err, outcome.Err); err != nil {
		return fmt.Errorf("signing key %d: %w", number, err)
	}
	s.log.Info("signing with a new key", "number", number, "key", public.PublicKey)
	s.missedLocked(false)
	return s.useLocked(k)
}

// newKeyLocked returns the key that the node makes for a number. If the node has made one before,
// and its proposal is still undecided, it is the same key, unless a removed member may have
// received it.
func (s *Maker) newKeyLocked(number uint64) (heldKey, error) {
	members := s.members()
	if k, ok := s.keys.proposed(number, members); ok {
		return k, nil
	}
	seed := make([]byte, ed25519.SeedSize)
	_, _ = rand.Read(seed) // never fails
	k, err := s.keys.key(number, seed, members)
	if err != nil {
		return k, err
	}
	return k, s.keys.add(k)
}

func (s *Maker) members() []string { return slices.Sorted(slices.Values(s.opts.Members())) }

// giveLocked has a majority store a key. A member that was removed in the meantime must not have
// it: then the node makes another.
func (s *Maker) giveLocked(k heldKey) error {
	ctx, cancel := context.WithTimeout(s.stopping, fetchTimeout)
	defer cancel()
	if err := s.opts.Give(ctx, k.number, k.seed[:], k.members); err != nil {
		return err
	}
	if !slices.Equal(s.members(), k.members) {
		return fmt.Errorf("%w: the members have changed", ErrNotGiven)
	}
	return nil
}

// maxUnseen is how many keys a member may lag and still receive the next one.
const maxUnseen = 8

// Keep stores a key that another member is about to propose: one with a number just ahead, or one
// in the log.
func (s *Maker) Keep(number uint64, seed []byte) error {
	last, err := signing.LastKey(s.opts.Store)
	if err != nil {
		return err
	}
	k, err := s.keys.key(number, seed, nil)
	switch {
	case err != nil:
		return err
	case number == last.Number && k.signer.PublicKey() == last.PublicKey:
		return s.keys.add(k)
	case number <= last.Number:
		return ErrKeyTaken
	case number-last.Number > maxUnseen:
		return fmt.Errorf("checkpoint: this node's log ends at signing key %d", last.Number)
	default:
		return s.keys.add(k)
	}
}

// Rotate makes a new key at the leader, endorsed by the key before. If neither this node nor a
// reachable member has the key before, Rotate returns ErrKeyMissing. With oldIsLost it continues
// without an endorsement. The first key of a cluster has none.
func (s *Maker) Rotate(ctx context.Context, oldIsLost bool) (signing.Key, error) {
	if err := s.rotate(ctx, oldIsLost); err != nil {
		return signing.Key{}, err
	}
	return signing.LastKey(s.opts.Store)
}

func (s *Maker) rotate(ctx context.Context, oldIsLost bool) error {
	if err := s.keys.Lock(ctx); err != nil {
		return err
	}
	defer s.keys.Unlock()
	if err := s.tendLocked(ctx, false); err != nil {
		return err
	}
	last, err := signing.LastKey(s.opts.Store)
	if err != nil {
		return err
	}
	before, ok := s.keys.find(last.Number, last.PublicKey)
	switch {
	case ok:
		return s.makeKeyLocked(last.Number+1, &before)
	case s.own(last) && !oldIsLost:
		return ErrKeyMissing // a member that does not answer now may have it
	default:
		return s.makeKeyLocked(last.Number+1, nil)
	}
}

// Seed returns the private part of the newest key in the log, for another member.
func (s *Maker) Seed(number uint64) ([]byte, bool) {
	last, err := signing.LastKey(s.opts.Store)
	if err != nil || last.Number != number {
		return nil, false
	}
	k, ok := s.keys.find(number, last.PublicKey)
	return k.seed[:], ok
}

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
	"runlog/storage/machine/signing"
)

// tendKey sees to it that the node has the key with which the cluster signs.
func (s *Sealer) tendKey() {
	ticker := time.NewTicker(step)
	defer ticker.Stop()
	for {
		if err := s.tend(s.stopping, s.opts.Interval > 0); err != nil && s.stopping.Err() == nil {
			s.log.Warn("the signing key could not be seen to, trying again", "err", err)
		}
		select {
		case <-ticker.C:
		case <-s.stopping.Done():
			return
		}
	}
}

// current returns the signer of the newest key, or ErrKeyMissing with what there is to say about
// it.
func (s *Sealer) current(ctx context.Context) (*proof.Signer, error) {
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

// tend makes the newest key that of the signer: it is in the file, or another member has it, or,
// where the cluster has none yet, this node leads and may make it. A key that was made under
// another cluster id does not count: that is what a restored backup has.
func (s *Sealer) tend(ctx context.Context, mayMake bool) error {
	if err := s.keys.Lock(ctx); err != nil {
		return err
	}
	defer s.keys.Unlock()
	return s.tendLocked(ctx, mayMake)
}

func (s *Sealer) tendLocked(ctx context.Context, mayMake bool) error {
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

// missedLocked tells that the key is missing once it has been for a while: a node that has just
// joined is not given it at once.
func (s *Sealer) missedLocked(missed bool) {
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

// own tells whether a key belongs to this cluster.
func (s *Sealer) own(k signing.Key) bool {
	cluster, ok := proof.ClusterOf(k.PublicKey)
	return k.Number > 0 && ok && cluster == s.opts.Cluster
}

// useLocked signs with a key from now on, and forgets those before it.
func (s *Sealer) useLocked(k heldKey) error {
	if err := s.keys.keep(k); err != nil {
		return err
	}
	s.signer.Store(k.signer)
	return nil
}

// fetchLocked asks other members for the private part of a public key, and keeps it.
func (s *Sealer) fetchLocked(ctx context.Context, public signing.Key) (found heldKey, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	s.opts.Fetch(ctx, public.Number, func(seed []byte) bool {
		k, err := s.keys.key(public.Number, seed, nil)
		if err != nil || k.signer.PublicKey() != public.PublicKey {
			s.log.Warn("a member gave a signing key that is not the cluster's", "number", public.Number)
			return false
		}
		if err := s.keys.keep(k); err != nil {
			s.log.Error("the signing key was not kept", "err", err)
			return false
		}
		found, ok = k, true
		return true
	})
	return found, ok
}

// makeKeyLocked proposes a key, which the one before endorses where it is there. A majority has it
// on stable storage before the log has its public part, so that who loses a disk does not lose it;
// others fetch it as soon as they see that.
func (s *Sealer) makeKeyLocked(number uint64, before *heldKey) error {
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
	cmd, err := signing.EncodeKey(public)
	if err != nil {
		return err
	}
	outcome, err := s.opts.Propose(s.stopping, cmd) // no caller gives this up
	if err = errors.Join(err, outcome.Err); err != nil {
		return fmt.Errorf("signing key %d: %w", number, err)
	}
	s.log.Info("the cluster signs with a new key", "number", number, "key", public.PublicKey)
	s.missedLocked(false)
	return s.useLocked(k)
}

// newKeyLocked returns the key that the node makes for a number. Where it has made one already, and
// does not know whether the log takes it yet, it is the same, unless somebody may have been given
// that who is no member any more.
func (s *Sealer) newKeyLocked(number uint64) (heldKey, error) {
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

func (s *Sealer) members() []string { return slices.Sorted(slices.Values(s.opts.Members())) }

// giveLocked has a majority keep a key. Who has left while it was given must not have it: then
// another is made.
func (s *Sealer) giveLocked(k heldKey) error {
	ctx, cancel := context.WithTimeout(s.stopping, fetchTimeout)
	defer cancel()
	if err := s.opts.Give(ctx, k.number, k.seed[:], k.members); err != nil {
		return err
	}
	if !slices.Equal(s.members(), k.members) {
		return fmt.Errorf("%w: they have changed meanwhile", ErrNotGiven)
	}
	return nil
}

// maxUnseen is how many keys a member may be behind the leader to be given the next one.
const maxUnseen = 8

// Keep keeps a key that another member is about to propose: one whose number comes soon, or what
// the log has.
func (s *Sealer) Keep(number uint64, seed []byte) error {
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
		return fmt.Errorf("seal: the log is known up to signing key %d here", last.Number)
	default:
		return s.keys.add(k)
	}
}

// Rotate makes a new key, at the leader, which the one before endorses. Where neither this node nor
// any member that answers has the one before it is ErrKeyMissing, unless the caller says that it is
// lost: then nobody vouches for the new one. The first key of a cluster has none before it.
func (s *Sealer) Rotate(ctx context.Context, oldIsLost bool) (signing.Key, error) {
	if err := s.rotate(ctx, oldIsLost); err != nil {
		return signing.Key{}, err
	}
	return signing.LastKey(s.opts.Store)
}

func (s *Sealer) rotate(ctx context.Context, oldIsLost bool) error {
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

// Seed returns the private part of the newest key that the log has, for another member.
func (s *Sealer) Seed(number uint64) ([]byte, bool) {
	last, err := signing.LastKey(s.opts.Store)
	if err != nil || last.Number != number {
		return nil, false
	}
	k, ok := s.keys.find(number, last.PublicKey)
	return k.seed[:], ok
}

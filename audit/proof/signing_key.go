package proof

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// SigningKeyTitle is the title of the statement by which a key endorses the next one.
const SigningKeyTitle = "runlog signing key 1"

// SigningKey is a key's statement about the next one.
type SigningKey struct {
	Cluster [16]byte
	// Number of the key that follows, from 1.
	Number uint64
	// PublicKey is its text form.
	PublicKey string
}

// Statement returns it as the key before signs it.
func (k *SigningKey) Statement() *Statement {
	s := &Statement{Title: SigningKeyTitle}
	return s.Add("cluster", hex.EncodeToString(k.Cluster[:])).Add("number", strconv.FormatUint(k.Number, 10)).Add("key", k.PublicKey)
}

// ParseSigningKey reads the statement. Errors are ErrStatement.
func ParseSigningKey(s *Statement) (*SigningKey, error) {
	k := &SigningKey{}
	err := s.Expect(SigningKeyTitle)
	for _, step := range []func() error{
		func() error { return s.takeHex("cluster", k.Cluster[:]) },
		func() (err error) { k.Number, err = s.TakeNumber("number"); return err },
		func() (err error) { k.PublicKey, err = s.Take("key"); return err },
		s.End,
	} {
		if err == nil {
			err = step()
		}
	}
	if err != nil {
		return nil, err
	}
	return k, nil
}

// ClusterOf returns the cluster of a key's name, or of a key in its text form.
func ClusterOf(key string) (cluster [16]byte, ok bool) {
	name, _, _ := strings.Cut(key, "+")
	digits, ok := strings.CutPrefix(name, "runlog/")
	if !ok || len(digits) != 2*len(cluster) {
		return cluster, false
	}
	if _, err := hex.Decode(cluster[:], []byte(digits)); err != nil || KeyName(cluster) != name {
		return cluster, false
	}
	return cluster, true
}

// Key is a public key of a cluster, as verifiers are given it.
type Key struct {
	// PublicKey is its text form.
	PublicKey string `json:"publicKey"`
	// Endorsement is the note in which the key before endorses this one. The first key has none.
	Endorsement string `json:"endorsement,omitempty"`
}

// Lineage returns the keys of a cluster, oldest first, that lead to one of them: of those before
// it, the ones from which endorsements lead there without a gap. Nil: it is not among them.
func Lineage(keys []Key, publicKey string) []Key {
	last := slices.IndexFunc(keys, func(k Key) bool { return k.PublicKey == publicKey })
	if last < 0 {
		return nil
	}
	first := last
	for first > 0 && keys[first].Endorsement != "" {
		first--
	}
	lineage := slices.Clone(keys[first : last+1])
	lineage[0].Endorsement = "" // by a key that is not there
	return lineage
}

// CheckpointLineage returns the lineage of a checkpoint's claimed key, unverified.
func CheckpointLineage(note string, keys []Key) ([]Key, error) {
	c, signers, err := PeekCheckpoint(note)
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		as, err := CheckpointKey(k.PublicKey, c.Incarnation)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(signers, func(who string) bool { return strings.HasPrefix(as, who+"+") }) {
			return Lineage(keys, k.PublicKey), nil
		}
	}
	return nil, fmt.Errorf("%w, but by %s", ErrUnknownKey, strings.Join(signers, ", "))
}

// Trusted verifies a lineage of keys, each endorsed by the one before as the next in number. It
// returns the trusted part: from the first key that the caller trusts to the last. If there is
// none, the error is ErrUnknownKey, and names the key without an endorsement.
func Trusted(lineage []Key, trusted ...string) ([]string, error) {
	var good []string
	var number uint64 // 0: the number of the first key, which the file does not have
	for i, k := range lineage {
		if i > 0 {
			said, err := endorses(lineage[i-1].PublicKey, k)
			if err == nil && (said < 2 || number > 0 && said != number+1) {
				err = fmt.Errorf("%w: it is endorsed as number %d, which does not follow the one before", ErrUnknownKey, said)
			}
			if err != nil {
				return nil, fmt.Errorf("key %d of %d: %w", i+1, len(lineage), err)
			}
			number = said
		} else if k.Endorsement != "" {
			return nil, fmt.Errorf("%w: the first key is endorsed by one that is not there", ErrNote)
		}
		if _, err := KeyID(k.PublicKey); err != nil {
			return nil, err
		}
		if len(good) > 0 || slices.Contains(trusted, k.PublicKey) {
			good = append(good, k.PublicKey)
		}
	}
	switch n := len(lineage); {
	case n == 0:
		return nil, fmt.Errorf("%w: there is no key", ErrUnknownKey)
	case len(good) == 0:
		return nil, fmt.Errorf("%w, but by %s, which none of them vouches for", ErrUnknownKey, nameAndID(lineage[n-1].PublicKey))
	}
	return good, nil
}

// nameAndID returns a public key without the key itself.
func nameAndID(publicKey string) string {
	name, rest, _ := strings.Cut(publicKey, "+")
	id, _, _ := strings.Cut(rest, "+")
	return name + "+" + id
}

// endorses verifies that a key endorses the next one, and returns the number in the statement.
func endorses(before string, k Key) (number uint64, err error) {
	s, _, err := Open(k.Endorsement, before)
	if err == nil {
		err = signedOnce(k.Endorsement)
	}
	if err != nil {
		return 0, fmt.Errorf("it is not endorsed by the key before: %w", err)
	}
	said, err := ParseSigningKey(s)
	if err != nil {
		return 0, err
	}
	cluster, ok := ClusterOf(k.PublicKey)
	if !ok || said.PublicKey != k.PublicKey || said.Cluster != cluster || !strings.HasPrefix(before, KeyName(cluster)+"+") {
		return 0, fmt.Errorf("%w: it is not endorsed by the key before, which endorses %s", ErrUnknownKey, said.PublicKey)
	}
	return said.Number, nil
}

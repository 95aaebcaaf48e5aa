package proof

import (
	"crypto"
	"crypto/ed25519"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"filippo.io/mldsa"
)

// The types of witnesses' keys.
const (
	KeyEd25519 = "ed25519"
	// KeyMLDSA44 is ML-DSA-44 (FIPS 204), which quantum computers do not break. Its signature
	// covers a checkpoint's origin, size and root, and not the lines below them.
	KeyMLDSA44 = "ml-dsa-44"
)

// SeedSize is the number of bytes of which a key of either type is made.
const SeedSize = 32

// cosignerKind is a kind of keys with which witnesses sign (C2SP tlog-cosignature).
type cosignerKind struct {
	name string
	// alg is the first byte of a key (C2SP signed-note).
	alg byte
	// public and signature are sizes in bytes; maxName bounds the name, 0: nothing does.
	public, signature, maxName int
	// private returns the key of a seed.
	private func(seed [SeedSize]byte) (crypto.Signer, []byte, error)
	// message is what a witness signs of the text of a checkpoint.
	message func(witness, body string, seconds uint64) ([]byte, error)
	// verify gets a public key and a signature of the sizes above.
	verify func(public, message, signature []byte) bool
}

var cosignerKinds = []*cosignerKind{
	{
		name: KeyEd25519, alg: 4, public: ed25519.PublicKeySize, signature: ed25519.SignatureSize,
		private: func(seed [SeedSize]byte) (crypto.Signer, []byte, error) {
			key := ed25519.NewKeyFromSeed(seed[:])
			return key, key.Public().(ed25519.PublicKey), nil
		},
		message: textMessage,
		verify:  func(public, message, signature []byte) bool { return ed25519.Verify(public, message, signature) },
	},
	{
		name: KeyMLDSA44, alg: 6, public: mldsa.MLDSA44PublicKeySize, signature: mldsa.MLDSA44SignatureSize, maxName: 255,
		private: func(seed [SeedSize]byte) (crypto.Signer, []byte, error) {
			key, err := mldsa.NewPrivateKey(mldsa.MLDSA44(), seed[:])
			if err != nil {
				return nil, nil, err
			}
			return key, key.PublicKey().Bytes(), nil
		},
		message: treeMessage,
		verify: func(public, message, signature []byte) bool {
			key, err := mldsa.NewPublicKey(mldsa.MLDSA44(), public)
			return err == nil && mldsa.Verify(key, message, signature, nil) == nil
		},
	},
}

// cosignerKindOf returns the kind of a type of keys. The error is ErrKey.
func cosignerKindOf(keyType string) (*cosignerKind, error) {
	var names []string
	for _, k := range cosignerKinds {
		if k.name == keyType {
			return k, nil
		}
		names = append(names, k.name)
	}
	return nil, fmt.Errorf("%w: %q is no type of keys of witnesses; they are %s", ErrKey, keyType, strings.Join(names, " and "))
}

// cosignerKindOfKey returns the kind of a key by its first byte; nil: there is none.
func cosignerKindOfKey(raw []byte) *cosignerKind {
	for _, k := range cosignerKinds {
		if len(raw) > 0 && raw[0] == k.alg {
			return k
		}
	}
	return nil
}

// textMessage is signed with Ed25519: all lines of the checkpoint, below the time.
func textMessage(_, body string, seconds uint64) ([]byte, error) {
	return []byte("cosignature/v1\ntime " + strconv.FormatUint(seconds, 10) + "\n" + body), nil
}

// treeMessage is signed with ML-DSA-44: the witness, the time and the tree, of which a checkpoint
// has all leaves. The error is that of ParseCheckpoint.
func treeMessage(witness, body string, seconds uint64) ([]byte, error) {
	c, err := ParseCheckpoint(body)
	if err != nil {
		return nil, err
	}
	m := []byte("subtree/v1\n\x00")
	m = append(append(m, byte(len(witness))), witness...)
	m = binary.BigEndian.AppendUint64(m, seconds)
	origin := c.Origin()
	m = append(append(m, byte(len(origin))), origin...)
	m = binary.BigEndian.AppendUint64(m, 0) // the first leaf
	m = binary.BigEndian.AppendUint64(m, c.Size)
	return append(m, c.Root[:]...), nil
}

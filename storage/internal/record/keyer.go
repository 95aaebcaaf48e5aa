package record

import (
	"crypto/aes"
	"crypto/cipher"
	"fmt"
)

// ReceiptKey is the secret of a cluster that receipts are keyed with (LIFE-5). Zero: there is none
// yet.
type ReceiptKey [16]byte

// String keeps the key out of what is printed.
func (ReceiptKey) String() string { return "(secret)" }

// GoString keeps the key out of what is printed with %#v.
func (ReceiptKey) GoString() string { return "(secret)" }

// Keyer is a keyed function of the digests of a command: AES-128 of one block, which has the digest
// (8), what it is of (1) and zeros (7); the first half of the result. Apply keys every event in
// order, and this took 20 ns, where HMAC-SHA-256 took 160.
//
// One goroutine uses it.
type Keyer struct {
	of    ReceiptKey
	block cipher.Block // nil: there is no key
	in    [aes.BlockSize]byte
	out   [aes.BlockSize]byte
}

// What a digest is of.
const (
	ofContent  = 1
	ofImported = 2
)

// Use replaces the key. The zero key is none.
func (k *Keyer) Use(key ReceiptKey) {
	if key == k.of {
		return
	}
	k.of, k.block = key, nil
	if key != (ReceiptKey{}) {
		k.block, _ = aes.NewCipher(key[:]) // fails for other lengths alone
	}
}

func (k *Keyer) key(digest [8]byte, of byte) [8]byte {
	copy(k.in[:], digest[:])
	k.in[8] = of
	k.block.Encrypt(k.out[:], k.in[:])
	return [8]byte(k.out[:8])
}

// parseReceiptKey reads a key; empty: none.
func parseReceiptKey(b []byte) (ReceiptKey, error) {
	switch len(b) {
	case 0:
		return ReceiptKey{}, nil
	case len(ReceiptKey{}):
		return ReceiptKey(b), nil
	}
	return ReceiptKey{}, fmt.Errorf("key for receipts of %d bytes", len(b))
}

// KeyFor returns the key for the receipts of a command: that of the cluster, or, if it has none,
// the one that the command brings along.
func (c *AppendCommand) KeyFor(cluster ReceiptKey) (ReceiptKey, error) {
	if cluster != (ReceiptKey{}) {
		return cluster, nil
	}
	key, err := parseReceiptKey(c.ReceiptKey)
	switch {
	case err != nil:
		return key, fmt.Errorf("%w: %w", ErrCommand, err)
	case key == ReceiptKey{}:
		return key, fmt.Errorf("%w: an append without a key for receipts, where the cluster has none", ErrCommand)
	}
	return key, nil
}

package checkpoint

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/audit/proof"
	"runlog/storage"
	"runlog/storage/machine/signing"
)

// keyring holds the private key in a file:
//
//	{"cluster":"0191…","keys":[{"number":1,"seed":"base64","members":["n1.1","n2.2"]}]}
//
// The ring has more than one key while a new one is proposed and undecided. A node makes at most
// one key for each number and set of members, so there are never more than a few. Only keys that
// this node made, and that the log does not have yet, have members.
type keyring struct {
	disk    vfs.FS
	path    string
	cluster [16]byte

	mu   sync.Mutex // also while the file is written
	held []heldKey
}

type heldKey struct {
	number uint64
	seed   [ed25519.SeedSize]byte
	// members may be given it before the log has it, sorted; nil: it is not this node's to propose.
	members []string
	signer  *proof.Signer
}

type keyFile struct {
	Cluster string    `json:"cluster"`
	Keys    []fileKey `json:"keys"`
}

type fileKey struct {
	Number  uint64   `json:"number"`
	Seed    []byte   `json:"seed"`
	Members []string `json:"members,omitempty"`
}

const (
	// maxKeyFile is more than the file ever has, in bytes.
	maxKeyFile = 1 << 20
	// maxHeld is far more than the keys that members make before the log takes one.
	maxHeld = 64
)

// open reads the file. Without a file, or with the file of another cluster, the ring is empty. If
// the file cannot be read, open returns an error and the ring is empty; the next key rewrites the
// file.
func (r *keyring) open() error {
	text, err := storage.ReadFile(r.disk, r.path, maxKeyFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	var f keyFile
	if err := json.Unmarshal(text, &f); err != nil {
		return fmt.Errorf("checkpoint: %s: %w", r.path, err)
	}
	if f.Cluster != fmt.Sprintf("%x", r.cluster) {
		return nil
	}
	var held []heldKey
	for _, k := range f.Keys {
		one, err := r.key(k.Number, k.Seed, k.Members)
		if err != nil {
			return fmt.Errorf("checkpoint: %s: key %d: %w", r.path, k.Number, err)
		}
		held = append(held, one)
	}
	r.held = held
	return nil
}

func (r *keyring) key(number uint64, seed []byte, members []string) (heldKey, error) {
	k := heldKey{number: number, members: members}
	if len(seed) != len(k.seed) {
		return k, fmt.Errorf("checkpoint: signing key seed has %d bytes", len(seed))
	}
	copy(k.seed[:], seed)
	var err error
	k.signer, err = proof.NewSigner(r.cluster, k.seed)
	return k, err
}

// find returns the key with a number and a public part.
func (r *keyring) find(number uint64, publicKey string) (heldKey, bool) {
	return r.first(func(k heldKey) bool { return k.number == number && k.signer.PublicKey() == publicKey })
}

// proposed returns a key with a number that this node has made, and that no others than these
// members may have.
func (r *keyring) proposed(number uint64, members []string) (heldKey, bool) {
	return r.first(func(k heldKey) bool { return k.number == number && slices.Equal(k.members, members) })
}

func (r *keyring) first(is func(heldKey) bool) (heldKey, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.IndexFunc(r.held, is); i >= 0 {
		return r.held[i], true
	}
	return heldKey{}, false
}

// add stores one more key durably.
func (r *keyring) add(k heldKey) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case slices.ContainsFunc(r.held, k.is):
		return nil
	case len(r.held) >= maxHeld:
		return fmt.Errorf("checkpoint: %s holds %d keys that the log does not have", r.path, maxHeld)
	}
	return r.replaceLocked(append(slices.Clone(r.held), k))
}

func (k heldKey) is(other heldKey) bool { return k.number == other.number && k.seed == other.seed }

// keep stores a key of the log durably, and drops the keys that it replaces. Keys with higher
// numbers stay: the log may have one of them, ahead of the store.
func (r *keyring) keep(k heldKey) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	k.members = nil // no member is left to propose it
	held := slices.DeleteFunc(slices.Clone(r.held), func(other heldKey) bool { return other.number <= k.number })
	held = append(held, k)
	if slices.EqualFunc(held, r.held, func(a, b heldKey) bool { return a.is(b) && slices.Equal(a.members, b.members) }) {
		return nil
	}
	return r.replaceLocked(held)
}

func (r *keyring) replaceLocked(held []heldKey) error {
	f := keyFile{Cluster: fmt.Sprintf("%x", r.cluster)}
	for _, k := range held {
		f.Keys = append(f.Keys, fileKey{k.number, k.seed[:], k.members})
	}
	text, err := json.Marshal(f)
	if err == nil {
		err = storage.ReplaceFile(r.disk, r.path, append(text, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("checkpoint: write %s: %w", r.path, err)
	}
	r.held = held
	return nil
}

// HeldSigner returns the signer of the cluster's current key, read from the file of a node that
// does not run; nil: the node does not have the key.
func HeldSigner(disk vfs.FS, path string, cluster [16]byte, store *storage.Store) (*proof.Signer, error) {
	ring := keyring{disk: disk, path: path, cluster: cluster}
	if err := ring.open(); err != nil {
		return nil, err
	}
	last, err := signing.LastKey(store)
	if err != nil {
		return nil, err
	}
	k, _ := ring.find(last.Number, last.PublicKey)
	return k.signer, nil
}

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
)

// keyring holds the private key in a file:
//
//	{"cluster":"0191…","keys":[{"number":1,"seed":"base64","members":["n1.1","n2.2"]}]}
//
// There are more than one in it while a new one is on its way into the log, and it is not known yet
// whether it was taken. For each number and set of members a node makes one key at the most, so
// that there are never more than a few. Only keys that the node has made itself, and that the log
// has not taken yet, have members.
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

// open reads the file. Where there is none, or it belongs to another cluster, there is no key. A
// file that cannot be read is an error; the ring is empty then, and the file is written anew with
// the next key.
func (r *keyring) open() error {
	text, err := storage.ReadFile(r.disk, r.path, maxKeyFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("seal: %w", err)
	}
	var f keyFile
	if err := json.Unmarshal(text, &f); err != nil {
		return fmt.Errorf("seal: %s: %w", r.path, err)
	}
	if f.Cluster != fmt.Sprintf("%x", r.cluster) {
		return nil
	}
	var held []heldKey
	for _, k := range f.Keys {
		one, err := r.key(k.Number, k.Seed, k.Members)
		if err != nil {
			return fmt.Errorf("seal: %s: key %d: %w", r.path, k.Number, err)
		}
		held = append(held, one)
	}
	r.held = held
	return nil
}

func (r *keyring) key(number uint64, seed []byte, members []string) (heldKey, error) {
	k := heldKey{number: number, members: members}
	if len(seed) != len(k.seed) {
		return k, fmt.Errorf("seal: a seed of %d bytes", len(seed))
	}
	copy(k.seed[:], seed)
	var err error
	k.signer, err = proof.NewSigner(r.cluster, k.seed)
	return k, err
}

// find returns the key with a number whose public part is publicKey.
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

// add puts a key beside those that are there, on stable storage.
func (r *keyring) add(k heldKey) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case slices.ContainsFunc(r.held, k.is):
		return nil
	case len(r.held) >= maxHeld:
		return fmt.Errorf("seal: %s holds %d keys of which the log has taken none", r.path, maxHeld)
	}
	return r.replaceLocked(append(slices.Clone(r.held), k))
}

func (k heldKey) is(other heldKey) bool { return k.number == other.number && k.seed == other.seed }

// keep sees to it that a key that the log has is on stable storage, and drops all that it takes the
// place of. Those with higher numbers stay: the log may name one of them, further than the store
// has got.
func (r *keyring) keep(k heldKey) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	k.members = nil // it is nobody's to propose any more
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
		return fmt.Errorf("seal: write %s: %w", r.path, err)
	}
	r.held = held
	return nil
}

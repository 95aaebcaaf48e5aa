package seal

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/proof"
	"runlog/storage"
)

// keyring holds the private key in a file:
//
//	{"cluster":"0191…","keys":[{"number":1,"seed":"base64"}]}
//
// There are more than one in it while a new one is on its way into the log, and it is not known yet whether it was taken. For each
// number the node makes one key only, so that there are never more than a few.
type keyring struct {
	disk    vfs.FS
	path    string
	cluster [16]byte
	held    []heldKey
}

type heldKey struct {
	number uint64
	seed   [ed25519.SeedSize]byte
	signer *proof.Signer
}

type keyFile struct {
	Cluster string    `json:"cluster"`
	Keys    []fileKey `json:"keys"`
}

type fileKey struct {
	Number uint64 `json:"number"`
	Seed   []byte `json:"seed"`
}

// maxKeyFile is more than the file ever has, in bytes.
const maxKeyFile = 1 << 20

// open reads the file. Where there is none, or it belongs to another cluster, there is no key. A file that cannot be read
// is an error; the ring is empty then, and the file is written anew with the next key.
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
		one, err := r.key(k.Number, k.Seed)
		if err != nil {
			return fmt.Errorf("seal: %s: key %d: %w", r.path, k.Number, err)
		}
		held = append(held, one)
	}
	r.held = held
	return nil
}

func (r *keyring) key(number uint64, seed []byte) (heldKey, error) {
	k := heldKey{number: number}
	if len(seed) != len(k.seed) {
		return k, fmt.Errorf("seal: a seed of %d bytes", len(seed))
	}
	copy(k.seed[:], seed)
	var err error
	k.signer, err = proof.NewSigner(r.cluster, k.seed)
	return k, err
}

// find returns the key with a number whose public part is publicKey, nil: it is not there.
func (r *keyring) find(number uint64, publicKey string) *heldKey {
	i := slices.IndexFunc(r.held, func(k heldKey) bool { return k.number == number && k.signer.PublicKey() == publicKey })
	if i < 0 {
		return nil
	}
	return &r.held[i]
}

// proposed returns the key that was made for a number and may be on its way into the log, nil: there is none.
func (r *keyring) proposed(number uint64) *heldKey {
	i := slices.IndexFunc(r.held, func(k heldKey) bool { return k.number == number })
	if i < 0 {
		return nil
	}
	return &r.held[i]
}

// add puts a key beside those that are there, on stable storage.
func (r *keyring) add(k heldKey) error { return r.replace(append(slices.Clone(r.held), k)) }

// keep sees to it that a key is on stable storage, and drops all that it takes the place of. Those with higher numbers stay: the log
// may name one of them, further than the store has got.
func (r *keyring) keep(k heldKey) error {
	held := slices.DeleteFunc(slices.Clone(r.held), func(other heldKey) bool {
		return other.number <= k.number && other.signer.PublicKey() != k.signer.PublicKey()
	})
	if r.find(k.number, k.signer.PublicKey()) == nil {
		held = append(held, k)
	} else if len(held) == len(r.held) {
		return nil
	}
	return r.replace(held)
}

func (r *keyring) replace(held []heldKey) error {
	f := keyFile{Cluster: fmt.Sprintf("%x", r.cluster)}
	for _, k := range held {
		f.Keys = append(f.Keys, fileKey{k.number, k.seed[:]})
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

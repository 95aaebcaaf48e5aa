package access_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/machine"
	"runlog/storage/machine/access"
	"runlog/storage/storagetest"
)

// bed is a store, and what its tokens must be.
type bed struct {
	*storagetest.Local
	t     rapid.TB
	model []*access.Token // in the order in which they were made
}

func open(t rapid.TB) *bed {
	t.Helper()
	l, err := storagetest.Open(storage.Options{FS: vfs.NewMem(), Machines: machine.All(), FeatureLevel: machine.FeatureLevel})
	if err != nil {
		t.Fatal(err)
	}
	return &bed{Local: l, t: t}
}

// do applies an operation as a log entry of its own, and returns its stamp and its refusal.
func (b *bed) do(op storage.Operation, err error) (stamp int64, refused error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
	c, err := storage.EncodeCommand(op)
	if err != nil {
		b.t.Fatal(err)
	}
	p := storage.NewProposal(storagetest.Cluster, c.Size())
	p.Add(c)
	outcomes, err := b.Store.Apply(b.Applied().Index+1, 1, p.Seal(1))
	if err != nil {
		b.t.Fatal(err)
	}
	return b.Applied().PersistedAt, outcomes[0].Err
}

// live returns the token of the model with a name that is not revoked.
func (b *bed) live(name string) *access.Token {
	for _, t := range b.model {
		if t.Name == name && t.RevokedAt == 0 {
			return t
		}
	}
	return nil
}

func (b *bed) put(name string) {
	b.t.Helper()
	n := len(b.model)
	token := &access.Token{
		ID: fmt.Sprintf("id-%03d", n), Hash: sha256.Sum256([]byte{byte(n)}), Name: name, Tenants: []string{"acme"},
		Roles: []uint32{1, 2}, ExpiresAt: int64(n), CreatedBy: contract.Author{Name: "ops", TokenID: "id-000"},
	}
	stamp, refused := b.do(access.PutToken(token))
	var taken *access.NameTakenError
	if other := b.live(name); other != nil {
		if !errors.As(refused, &taken) || taken.ID != other.ID {
			b.t.Fatalf("a second token %q: %v", name, refused)
		}
		return
	}
	if refused != nil {
		b.t.Fatal(refused)
	}
	token.CreatedAt = stamp
	b.model = append(b.model, token)
}

var admin = contract.Author{Name: "admin", TokenID: "id-admin"}

func (b *bed) revoke(id string) {
	b.t.Helper()
	stamp, refused := b.do(access.RevokeToken(id, admin))
	i := slices.IndexFunc(b.model, func(t *access.Token) bool { return t.ID == id })
	var missing *access.NotFoundError
	switch {
	case i < 0:
		if !errors.As(refused, &missing) {
			b.t.Fatalf("a token that does not exist: %v", refused)
		}
	case refused != nil:
		b.t.Fatal(refused)
	case b.model[i].RevokedAt == 0:
		b.model[i].RevokedAt, b.model[i].RevokedBy = stamp, admin
	}
}

func (b *bed) check() {
	b.t.Helper()
	got, err := access.Tokens(b.Store, "", 1000)
	if err != nil || len(got) != len(b.model) || len(got) > 0 && !reflect.DeepEqual(got, b.model) {
		b.t.Fatalf("tokens %v, %v; want %v", got, err, b.model)
	}
	for _, t := range b.model {
		if found, err := access.TokenByHash(b.Store, t.Hash); err != nil || !reflect.DeepEqual(found, t) {
			b.t.Fatalf("token %s is found as %v, %v", t.ID, found, err)
		}
	}
	if found, err := access.TokenByHash(b.Store, [32]byte{}); found != nil || err != nil {
		b.t.Fatalf("a hash of no token: %v, %v", found, err)
	}
	if half := len(b.model) / 2; half > 0 {
		page, err := access.Tokens(b.Store, b.model[half-1].ID, 2)
		if want := b.model[half:min(half+2, len(b.model))]; err != nil || !reflect.DeepEqual(page, want) {
			b.t.Fatalf("a page after %d: %v, %v", half, page, err)
		}
	}
}

// TestTokensSEC2 compares tokens with a model, through refusals and restarts: a name is free again
// once its token is revoked, and a revocation is forever.
func TestTokensSEC2(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := open(t)
		for range rapid.IntRange(1, 30).Draw(t, "operations") {
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				if err := b.Reopen(); err != nil {
					t.Fatal(err)
				}
			case 1, 2, 3:
				b.revoke(fmt.Sprintf("id-%03d", rapid.IntRange(0, len(b.model)).Draw(t, "id")))
			default:
				b.put(rapid.SampledFrom([]string{"a", "aa", "b"}).Draw(t, "name"))
			}
			b.check()
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

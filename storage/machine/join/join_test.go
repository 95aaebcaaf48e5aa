package join_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/machine"
	"runlog/storage/machine/join"
	"runlog/storage/storagetest"
)

// bed is a store, and what its tokens and admissions must be.
type bed struct {
	*storagetest.Local
	t      rapid.TB
	tokens []*join.Token // in the order in which they were made
	admits map[string]admission
}

type admission struct {
	ends  int64
	token string
}

func open(t rapid.TB) *bed {
	t.Helper()
	l, err := storagetest.Open(storage.Options{FS: vfs.NewMem(), Machines: machine.All(), FeatureLevel: machine.FeatureLevel})
	if err != nil {
		t.Fatal(err)
	}
	return &bed{Local: l, t: t, admits: map[string]admission{}}
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
	outcomes, err := b.Store.Apply(b.Applied().Index+1, 1, p.Seal(b.Applied().PersistedAt+1))
	if err != nil {
		b.t.Fatal(err)
	}
	return b.Applied().PersistedAt, outcomes[0].Err
}

func hashOf(n int) [32]byte { return sha256.Sum256([]byte{byte(n)}) }

func (b *bed) put(uses uint32, valid int64) {
	b.t.Helper()
	n := len(b.tokens)
	t := &join.Token{
		ID: fmt.Sprintf("id-%03d", n), Hash: hashOf(n), Uses: uses, ExpiresAt: b.Applied().PersistedAt + valid, CreatedBy: contract.Author{Name: "ops", TokenID: "id-ops"},
	}
	stamp, refused := b.do(join.PutToken(t))
	if refused != nil {
		b.t.Fatal(refused)
	}
	t.CreatedAt = stamp
	b.tokens = append(b.tokens, t)
}

var admin = contract.Author{Name: "admin", TokenID: "id-admin"}

func (b *bed) revoke(n int) {
	b.t.Helper()
	id := fmt.Sprintf("id-%03d", n)
	stamp, refused := b.do(join.RevokeToken(id, admin))
	if n >= len(b.tokens) {
		if missing, ok := errors.AsType[*join.NotFoundError](refused); !ok || missing.ID != id {
			b.t.Fatalf("a token that does not exist: %v", refused)
		}
		return
	}
	if refused != nil {
		b.t.Fatal(refused)
	}
	if t := b.tokens[n]; t.RevokedAt == 0 {
		t.RevokedAt, t.RevokedBy = stamp, admin
		for node, a := range b.admits {
			if a.token == id {
				delete(b.admits, node)
			}
		}
	}
}

func (b *bed) use(n int, node string, lasts time.Duration) {
	b.t.Helper()
	stamp, refused := b.do(join.UseToken(hashOf(n), node, lasts))
	want := join.Why("")
	switch {
	case b.admits[node].ends > stamp:
		if refused != nil {
			b.t.Fatalf("a node that has an admission: %v", refused)
		}
		return
	case n >= len(b.tokens):
		want = join.Unknown
	case b.tokens[n].RevokedAt != 0:
		want = join.Revoked
	case b.tokens[n].ExpiresAt <= stamp:
		want = join.Expired
	case b.tokens[n].Used >= b.tokens[n].Uses:
		want = join.UsedUp
	default:
		b.tokens[n].Used++
		b.admits[node] = admission{stamp + int64(lasts), b.tokens[n].ID}
	}
	if got, _ := errors.AsType[*join.RefusedError](refused); want == "" && refused != nil || want != "" && (got == nil || got.Why != want) {
		b.t.Fatalf("token %d for %s: %v, want %q", n, node, refused, want)
	}
}

func (b *bed) check() {
	b.t.Helper()
	got, err := join.Tokens(b.Store)
	if err != nil || len(got) != len(b.tokens) || len(got) > 0 && !reflect.DeepEqual(got, b.tokens) {
		b.t.Fatalf("tokens %v, %v; want %v", got, err, b.tokens)
	}
	for _, t := range b.tokens {
		if t.Used > t.Uses {
			b.t.Fatalf("token %s has admitted %d of %d nodes", t.ID, t.Used, t.Uses)
		}
		if found, err := join.TokenByHash(b.Store, t.Hash); err != nil || !reflect.DeepEqual(found, t) {
			b.t.Fatalf("token %s is found as %v, %v", t.ID, found, err)
		}
	}
	for _, node := range nodes {
		ends, err := join.AdmittedUntil(b.Store, node)
		now := b.Applied().PersistedAt
		if want := b.admits[node].ends; err != nil || ends != want && (ends > now || want > now) {
			b.t.Fatalf("%s is admitted until %d, %v; want %d", node, ends, err, want)
		}
	}
}

var nodes = []string{"a.1", "a.10", "b.1"}

// TestJoinTokensSEC1 compares tokens and admissions with a model, through refusals and restarts: no
// token admits more nodes than its uses, and none after its end or its revocation.
func TestJoinTokensSEC1(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := open(t)
		for range rapid.IntRange(1, 40).Draw(t, "operations") {
			node := rapid.SampledFrom(nodes).Draw(t, "node")
			lasts := time.Duration(rapid.IntRange(1, 20).Draw(t, "lasts"))
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				if err := b.Reopen(); err != nil {
					t.Fatal(err)
				}
			case 1:
				b.revoke(rapid.IntRange(0, len(b.tokens)).Draw(t, "token"))
			case 2:
				stamp, refused := b.do(join.Admit(node, lasts))
				if refused != nil {
					t.Fatal(refused)
				}
				b.admits[node] = admission{ends: stamp + int64(lasts)}
			case 3:
				if _, refused := b.do(join.EndAdmission(node)); refused != nil {
					t.Fatal(refused)
				}
				delete(b.admits, node)
			case 4, 5:
				b.put(uint32(rapid.IntRange(1, 3).Draw(t, "uses")), int64(rapid.IntRange(1, 20).Draw(t, "valid")))
			default:
				b.use(rapid.IntRange(0, len(b.tokens)).Draw(t, "token"), node, lasts)
			}
			b.check()
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestJoinTokensAreBoundedSEC1: the cluster keeps so many tokens, and drops those that ended long
// ago.
func TestJoinTokensAreBoundedSEC1(t *testing.T) {
	t.Parallel()
	b := open(t)
	put := func(n int) error {
		_, refused := b.do(join.PutToken(&join.Token{
			ID: fmt.Sprintf("id-%05d", n), Hash: sha256.Sum256(fmt.Append(nil, n)), Uses: 1, ExpiresAt: b.Applied().PersistedAt + 10,
		}))
		return refused
	}
	for n := range join.MaxTokens {
		if err := put(n); err != nil {
			t.Fatal(err)
		}
	}
	if err := put(join.MaxTokens); !errors.Is(err, join.ErrTooMany) {
		t.Fatalf("one token more: %v", err)
	}
	p := storage.NewProposal(storagetest.Cluster, 0)
	c, err := storage.EncodeCommand(mustOperation(t)(join.PutToken(&join.Token{ID: "later", Uses: 1})))
	if err != nil {
		t.Fatal(err)
	}
	p.Add(c)
	outcomes, err := b.Store.Apply(b.Applied().Index+1, 1, p.Seal(b.Applied().PersistedAt+int64(31*24*time.Hour)))
	if err != nil || outcomes[0].Err != nil {
		t.Fatal(err, outcomes)
	}
	if list, err := join.Tokens(b.Store); err != nil || len(list) != 1 || list[0].ID != "later" {
		t.Errorf("%d tokens, %v", len(list), err)
	}
	if found, err := join.TokenByHash(b.Store, sha256.Sum256(fmt.Append(nil, 1))); err != nil || found != nil {
		t.Errorf("a token that was dropped: %v, %v", found, err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

func mustOperation(t *testing.T) func(storage.Operation, error) storage.Operation {
	return func(op storage.Operation, err error) storage.Operation {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return op
	}
}

package tenant_test

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/machine"
	"runlog/storage/machine/tenant"
	"runlog/storage/storagetest"
)

// bed is a store, and what its limits must be.
type bed struct {
	*storagetest.Local
	t     rapid.TB
	model map[string]tenant.Limits
}

func open(t rapid.TB) *bed {
	t.Helper()
	l, err := storagetest.Open(storage.Options{FS: vfs.NewMem(), Machines: machine.All(), FeatureLevel: machine.FeatureLevel})
	if err != nil {
		t.Fatal(err)
	}
	return &bed{Local: l, t: t, model: map[string]tenant.Limits{}}
}

func (b *bed) set(l tenant.Limits) {
	b.t.Helper()
	op, err := tenant.SetLimits(&l)
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
	if err != nil || outcomes[0].Err != nil {
		b.t.Fatal(err, outcomes)
	}
	if l.Amounts == (tenant.Amounts{}) {
		delete(b.model, l.Tenant)
		return
	}
	l.SetAt = b.Applied().PersistedAt
	b.model[l.Tenant] = l
}

// want returns the limits of the model.
func (b *bed) want(name string) tenant.Limits {
	l := b.model[name]
	l.Tenant = name
	return l
}

func (b *bed) check(names []string) {
	b.t.Helper()
	for _, name := range names {
		own, standard, err := tenant.Read(b.Store, name)
		if err != nil || *own != b.want(name) || *standard != b.want(tenant.Default) {
			b.t.Fatalf("limits of %q: %+v, %+v, %v; want %+v, %+v", name, own, standard, err, b.want(name), b.want(tenant.Default))
		}
	}
}

// TestLimitsSEC6 compares the limits of tenants with a model, through restarts: limits are replaced
// as a whole, and the limits of one tenant say nothing about another, also where one name begins
// with the other.
func TestLimitsSEC6(t *testing.T) {
	t.Parallel()
	names := []string{tenant.Default, "a", "ab", "b"}
	rapid.Check(t, func(t *rapid.T) {
		b := open(t)
		amount := rapid.SampledFrom([]uint64{0, 0, 1, 1 << 40, ^uint64(0)})
		for range rapid.IntRange(1, 30).Draw(t, "operations") {
			if rapid.IntRange(0, 5).Draw(t, "what") == 0 {
				if err := b.Reopen(); err != nil {
					t.Fatal(err)
				}
			} else {
				b.set(tenant.Limits{
					Tenant: rapid.SampledFrom(names).Draw(t, "tenant"), SetBy: rapid.SampledFrom([]contract.Author{{}, {Name: "token:ops", TokenID: "id"}}).Draw(t, "by"),
					SetAt: 7, // Apply alone says when.
					Amounts: tenant.Amounts{
						EventsPerSecond: amount.Draw(t, "events"), BytesPerSecond: amount.Draw(t, "bytes"), Streams: amount.Draw(t, "streams"),
						StoredBytes: amount.Draw(t, "stored"), RunningRuns: amount.Draw(t, "runs"),
						SelfAttestation: tenant.SelfAttestation(rapid.Uint32Range(0, 2).Draw(t, "self-attestation")),
					},
				})
			}
			b.check(names)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestEffectiveSEC6 shows that the default of the cluster counts where a tenant has no limit of its
// own, and that a tenant's limit may be above the default.
func TestEffectiveSEC6(t *testing.T) {
	t.Parallel()
	own := &tenant.Limits{Amounts: tenant.Amounts{EventsPerSecond: 9, Streams: 1}}
	standard := &tenant.Limits{Amounts: tenant.Amounts{EventsPerSecond: 5, BytesPerSecond: 6, StoredBytes: 7, RunningRuns: 8}}
	want := tenant.Amounts{EventsPerSecond: 9, BytesPerSecond: 6, Streams: 1, StoredBytes: 7, RunningRuns: 8,
		SelfAttestation: tenant.SelfAttestationForbidden}
	if got := tenant.Effective(own, standard); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestSelfAttestationSEC10 shows that a tenant may forbid what the default allows, and allow what
// it forbids.
func TestSelfAttestationSEC10(t *testing.T) {
	t.Parallel()
	const unset, allowed, forbidden = tenant.SelfAttestation(0), tenant.SelfAttestationAllowed, tenant.SelfAttestationForbidden
	for _, c := range []struct{ own, standard, want tenant.SelfAttestation }{
		{unset, unset, forbidden}, {unset, allowed, allowed}, {unset, forbidden, forbidden},
		{allowed, unset, allowed}, {allowed, forbidden, allowed}, {forbidden, allowed, forbidden}, {forbidden, unset, forbidden},
	} {
		own := &tenant.Limits{Amounts: tenant.Amounts{SelfAttestation: c.own}}
		standard := &tenant.Limits{Amounts: tenant.Amounts{SelfAttestation: c.standard}}
		if got := tenant.Effective(own, standard).SelfAttestation; got != c.want {
			t.Errorf("%d with the default %d: got %d, want %d", c.own, c.standard, got, c.want)
		}
	}
}

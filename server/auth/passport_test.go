package auth

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestPassportsSEC3: a passport is good for its identity, for the node that made it alone, as long
// as its secret is known. One that differs by a byte, or was made with another secret, is good for
// none.
func TestPassportsSEC3(t *testing.T) {
	t.Parallel()
	secrets := map[uint64][]byte{1: bytes.Repeat([]byte{1}, 32), 2: bytes.Repeat([]byte{2}, 32)}
	newest := uint64(1)
	p := Passports{Secret: func(number uint64) ([]byte, uint64, bool) {
		if number == 0 {
			number = newest
		}
		s, ok := secrets[number]
		return s, number, ok
	}}
	rapid.Check(t, func(t *rapid.T) {
		i := &Identity{
			Name: rapid.String().Draw(t, "name"), Roles: Roles(rapid.Uint32Range(0, uint32(AllRoles)).Draw(t, "roles")) & AllRoles,
			Tenants: TenantsOf(rapid.SliceOf(rapid.SampledFrom([]string{"a", "b", "c", AllTenants})).Draw(t, "tenants")...),
			TokenID: rapid.SampledFrom([]string{"", "id"}).Draw(t, "token"),
		}
		if rapid.Bool().Draw(t, "ends") {
			i.Until = time.Unix(0, rapid.Int64Range(1, 1<<62).Draw(t, "until"))
		}
		newest = rapid.Uint64Range(1, 2).Draw(t, "secret")
		text, err := p.Make(i, "node-1")
		if err != nil {
			t.Fatal(err)
		}
		newest = 2
		if got, err := p.Verify(text, "node-1"); err != nil || !reflect.DeepEqual(got, i) {
			t.Fatalf("%+v, %v; want %+v", got, err, i)
		}
		if got, err := p.Verify(text, "node-2"); got != nil || err == nil {
			t.Fatalf("another node uses it: %+v", got)
		}
		at := rapid.IntRange(0, len(text)-1).Draw(t, "byte")
		changed := bytes.Clone(text)
		changed[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if got, err := p.Verify(changed, "node-1"); got != nil || err == nil {
			t.Fatalf("with another byte %d: %+v", at, got)
		}
		if got, err := p.Verify(text[:at], "node-1"); got != nil || err == nil {
			t.Fatalf("cut off at %d: %+v", at, got)
		}
	})
	if text, err := p.Make(Local, "node-1"); err != nil {
		t.Error(err)
	} else if got, err := p.Verify(text, "node-1"); got != Local || err != nil {
		t.Errorf("local: %+v, %v", got, err)
	}
	none := Passports{Secret: func(uint64) ([]byte, uint64, bool) { return nil, 0, false }}
	if _, err := none.Make(Local, "node-1"); !errors.Is(err, ErrNoSecret) {
		t.Errorf("without a secret: %v", err)
	}
}

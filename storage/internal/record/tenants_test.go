package record

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestTenantsKeepLittle: however large proposals were, little memory is kept of them, and the rows
// of the next are as if there had been none.
func TestTenantsKeepLittle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var used Tenants
		rows := func(from *Tenants) (all [][]byte) {
			err := from.Rows(7, func(key, value []byte) error {
				all = append(all, slices.Concat(key, []byte("="), value))
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return all
		}
		for range rapid.IntRange(1, 12).Draw(t, "proposals") {
			var fresh Tenants
			count := rapid.SampledFrom([]int{1, 3, 100, 3000}).Draw(t, "tenants")
			each := rapid.SampledFrom([]int{1, 50, 1000}).Draw(t, "spans of each")
			for i := range min(count*each, 20_000) {
				hash := HashTenant(fmt.Sprint("tenant-", i%count))
				used.Add(hash, 0, uint32(2*i)) // with a block between them of another tenant
				fresh.Add(hash, 0, uint32(2*i))
			}
			if got, want := rows(&used), rows(&fresh); !slices.EqualFunc(got, want, bytes.Equal) {
				t.Fatalf("rows %q, want %q", got, want)
			}
			used.Reset()
			kept := 0
			for _, b := range used.list[:cap(used.list)] {
				kept += cap(b.spans)
			}
			if kept > keptSpans || cap(used.list) > keptTenants {
				t.Fatalf("%d spans of %d tenants are kept", kept, cap(used.list))
			}
		}
	})
}

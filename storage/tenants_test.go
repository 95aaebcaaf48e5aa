package storage

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
		var used tenants
		rows := func(from *tenants) (all [][]byte) {
			err := from.rows(7, func(key, value []byte) error {
				all = append(all, slices.Concat(key, []byte("="), value))
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return all
		}
		for range rapid.IntRange(1, 12).Draw(t, "proposals") {
			var fresh tenants
			count := rapid.SampledFrom([]int{1, 3, 100, 3000}).Draw(t, "tenants")
			each := rapid.SampledFrom([]int{1, 50, 1000}).Draw(t, "spans of each")
			for i := range min(count*each, 20_000) {
				hash := hashTenant(fmt.Sprint("tenant-", i%count))
				used.add(hash, 0, uint32(2*i)) // with a block between them, which is nobody's
				fresh.add(hash, 0, uint32(2*i))
			}
			if got, want := rows(&used), rows(&fresh); !slices.EqualFunc(got, want, bytes.Equal) {
				t.Fatalf("rows %q, want %q", got, want)
			}
			used.reset()
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

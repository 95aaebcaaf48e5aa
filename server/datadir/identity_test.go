package datadir

import (
	"slices"
	"strings"
	"testing"

	"runlog/server/cluster"
)

// TestIdentityDamaged proves D10: no bit of what a node is can change unnoticed. Found by a
// simulation, in which a node took part under another name.
func TestIdentityDamaged(t *testing.T) {
	i := Identity{Format: Format, Identity: cluster.NewIdentity("first")}
	i.Started, i.Member, i.ClusterID = true, true, strings.Repeat("ab", 16)
	good, err := i.Text()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := parseIdentity(good); err != nil || got.NodeID != "first" || !got.Started {
		t.Fatalf("%+v, %v", got, err)
	}
	for bit := range len(good) * 8 {
		bad := slices.Clone(good)
		bad[bit/8] ^= 1 << (bit % 8)
		if got, err := parseIdentity(bad); err == nil && got.Format == Format {
			t.Errorf("bit %d flipped, and taken: %s", bit, bad)
		}
	}
	for n := range good {
		if _, err := parseIdentity(good[:n]); err == nil {
			t.Errorf("cut to %d bytes, and taken", n)
		}
	}
}

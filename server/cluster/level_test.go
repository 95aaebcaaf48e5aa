package cluster

import (
	"context"
	"strings"
	"testing"

	nodev1 "runlog/proto/node/v1"
	"runlog/raft"
)

// TestLowestLevel: the level rises to what all members support, and waits for each that does not
// answer or does not support more, by name.
func TestLowestLevel(t *testing.T) {
	member := func(id string, level uint32) Surveyed {
		return Surveyed{Member: raft.Member{ID: id + ".1"}, About: &nodev1.DescribeResponse{FeatureLevel: level, Version: "v-" + id}}
	}
	silent := Surveyed{Member: raft.Member{ID: "s.1"}, Err: context.DeadlineExceeded}
	for _, c := range []struct {
		members []Surveyed
		level   uint32
		want    uint32
		says    []string
	}{
		{[]Surveyed{member("a", 3), member("b", 2), member("c", 4)}, 1, 2, nil},
		{[]Surveyed{member("a", 3)}, 1, 3, nil},
		{[]Surveyed{member("a", 3), member("b", 1), silent}, 1, 0, []string{"node b (build v-b) supports levels up to 1", "node s does not answer"}},
		{[]Surveyed{member("a", 2), member("b", 2)}, 2, 0, []string{"node a", "node b"}},
		{[]Surveyed{member("a", 2), silent}, 1, 0, []string{"node s"}},
		{nil, 1, 0, []string{"not known"}},
	} {
		got, err := lowestLevel(c.members, c.level)
		if got != c.want || (err != nil) != (c.says != nil) {
			t.Errorf("%v: level %d, %v; want %d", c.members, got, err, c.want)
		}
		for _, text := range c.says {
			if err != nil && !strings.Contains(err.Error(), text) {
				t.Errorf("%q does not say %q", err, text)
			}
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%q has more than a line", err)
		}
	}
}

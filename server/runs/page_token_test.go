package runs

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"runlog/projector"
	"runlog/projector/run"
	"runlog/server/rpc"
	"runlog/storage"
)

// A page token is taken with its own filter in its own incarnation, and as it was;
// everything else is refused.
func TestPageTokensAreBound(t *testing.T) {
	in := storage.Incarnation{1}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom([]string{"", "a", "b", "ab", "a\x00b", strings.Repeat("x", 300)})
		number := rapid.SampledFrom([]int64{0, 1, 1 << 60})
		someFilter := rapid.Custom(func(t *rapid.T) run.Filter {
			return run.Filter{
				TenantID: text.Draw(t, "tenant"), ProjectID: text.Draw(t, "project"), EnvironmentID: text.Draw(t, "environment"),
				PlanID: text.Draw(t, "plan"), PlanVersion: text.Draw(t, "version"), RunIDPrefix: text.Draw(t, "prefix"),
				Statuses: run.Statuses(rapid.Uint16Range(0, 1<<9-1).Draw(t, "statuses")),
				Labels: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) run.Label {
					return run.Label{Key: text.Draw(t, "key"), Value: text.Draw(t, "value")}
				}), 0, 2).Draw(t, "labels"),
				StartedAfter: number.Draw(t, "started after"), StartedBefore: number.Draw(t, "started before"),
				OldestFirst:  rapid.Bool().Draw(t, "oldest"),
				CreatedAfter: number.Draw(t, "after"), CreatedBefore: number.Draw(t, "before"),
			}
		})
		f := someFilter.Draw(t, "filter")
		want := pageToken{
			position: storage.Position(rapid.Uint64().Draw(t, "position")),
			place:    rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, "place"),
		}
		someMoment := rapid.Custom(func(t *rapid.T) rpc.Moment {
			m := rpc.Moment{At: projector.Always}
			switch m.Kind = rapid.SampledFrom([]rpc.MomentKind{rpc.MomentNow, rpc.MomentTime, rpc.MomentPosition}).Draw(t, "kind"); m.Kind {
			case rpc.MomentTime:
				m.At.Time = number.Draw(t, "time")
			case rpc.MomentPosition:
				m.At.Position = storage.Position(number.Draw(t, "moment"))
			}
			return m
		})
		moment := someMoment.Draw(t, "moment")
		token := want.format(in, &f, moment)
		got, err := parsePageToken(token, in, &f, moment)
		if err != nil || got.position != want.position || !slices.Equal(got.place, want.place) {
			t.Fatalf("%+v became %+v, %v", want, got, err)
		}
		if other := someFilter.Draw(t, "other filter"); !reflect.DeepEqual(other, f) {
			if _, err := parsePageToken(token, in, &other, moment); err == nil {
				t.Fatalf("a token of %+v is taken for %+v", f, other)
			}
		}
		if other := someMoment.Draw(t, "other moment"); other != moment {
			if _, err := parsePageToken(token, in, &f, other); err == nil {
				t.Fatalf("a token of %+v is taken for %+v", moment, other)
			}
		}
		if _, err := parsePageToken(token, storage.Incarnation{2}, &f, moment); err == nil {
			t.Fatal("a token of another incarnation is taken")
		}
		at := rapid.IntRange(0, len(token)-1).Draw(t, "at")
		c := token[at : at+1]
		for what, bad := range map[string]string{
			"cut off":      token[:at+1],
			"cut in front": token[at:],
			"longer":       token[:at] + c + token[at:],
			"with a line":  token[:at] + "\n" + token[at:],
			"changed":      token[:at] + rapid.SampledFrom([]string{"A", "B", "_", "-", "9", "%"}).Draw(t, "into") + token[at+1:],
		} {
			if _, err := parsePageToken(bad, in, &f, moment); err == nil && bad != token {
				t.Fatalf("a token %s is taken: %s, was %s", what, bad, token)
			}
		}
	})
}

package greeting

import (
	"reflect"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	nodev1 "runlog/proto/node/v1"
	"runlog/raft/witness"
)

// FuzzGreeting reads any bytes as the greeting of another node. What it says comes back unchanged.
func FuzzGreeting(f *testing.F) {
	good, err := proto.Marshal(Encode(witness.Greeting{
		Address: "n1:7413", Standing: witness.Standing{Term: 3, Index: 9, LastTerm: 2}, Leader: witness.Leader{ID: "n1.7", Term: 3},
		Incarnations: []witness.Incarnation{{Number: 1}}, Members: map[string]witness.Recollection{"n2.8": {Term: 3, Index: 9}},
	}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var m nodev1.MeetRequest
		if proto.Unmarshal(b, &m) != nil {
			return
		}
		g := Decode(&m)
		// An incarnation without a number is none, and is left out.
		g.Incarnations = slices.DeleteFunc(g.Incarnations, func(i witness.Incarnation) bool { return i.Number == 0 })
		if len(g.Incarnations) == 0 {
			g.Incarnations = nil
		}
		if back := Decode(Encode(g)); !reflect.DeepEqual(back, g) {
			t.Fatalf("%+v came back as %+v", g, back)
		}
		a := DecodeAnswer(&nodev1.MeetResponse{Self: &m})
		if back := DecodeAnswer(EncodeAnswer(a)); !reflect.DeepEqual(back.Self.Members, a.Self.Members) || back.Self.Leader != a.Self.Leader {
			t.Fatalf("%+v came back as %+v", a, back)
		}
	})
}

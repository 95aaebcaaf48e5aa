package history

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func encoded(t interface{ Fatal(...any) }, h *History, finals []*Final) []byte {
	var b bytes.Buffer
	if err := Encode(&b, h, finals...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestLinesKeepEverything shows that what is read back is what was written.
func TestLinesKeepEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := build(drawShape(t))
		h, finals, err := Decode(bytes.NewReader(encoded(t, w.history, w.finals)))
		if err != nil {
			t.Fatal(err)
		}
		for i := range w.history.Ops {
			if got, want := h.Ops[i], w.history.Ops[i]; !reflect.DeepEqual(got, want) {
				t.Fatalf("op %d is %+v, want %+v", i, got, want)
			}
		}
		for i := range w.finals {
			if got, want := finals[i], w.finals[i]; got.Node != want.Node || !reflect.DeepEqual(got.Records, emptyIsNil(want.Records)) ||
				!reflect.DeepEqual(got.Hashes, want.Hashes) || !reflect.DeepEqual(got.Trees, want.Trees) || !reflect.DeepEqual(got.Snapshots, want.Snapshots) ||
				!reflect.DeepEqual(got.Windows, want.Windows) {
				t.Fatalf("node %d is %+v, want %+v", i, got, want)
			}
		}
	})
}

func emptyIsNil[T any](s []T) []T {
	if len(s) == 0 {
		return nil
	}
	return s
}

// TestDecodeRefuses shows what is no history.
func TestDecodeRefuses(t *testing.T) {
	const first = `{"version":1}` + "\n"
	for name, tt := range map[string]struct{ text, want string }{
		"empty":            {"", "empty"},
		"no version":       {`{"node":"n"}` + "\n", "line 1"},
		"another version":  {`{"version":2}` + "\n", "line 1"},
		"cut off":          {first + `{"node":"n`, "line 2"},
		"nothing":          {first + `{}`, "is not one of"},
		"two things":       {first + `{"node":"n","hash":{"index":1,"hash":"` + strings.Repeat("0", 64) + `"}}`, "is not one of"},
		"a second version": {first + `{"version":1,"node":"n"}`, "is not one of"},
		"an unknown field": {first + `{"node":"n","more":1}`, "unknown field"},
		"two values":       {first + `{"node":"n"}{"node":"m"}`, "more than one value"},
		"no node":          {first + `{"record":{}}`, "no"},
		"an empty op":      {first + `{"op":{"client":"c","call":1}}`, "the op is not one of"},
		"a mixed op":       {first + `{"op":{"client":"c","call":1,"read":{"run":"r"},"mark":{"run":"r","lastEventSeq":1}}}`, "the op is not one of"},
		"a short digest":   {first + `{"node":"n"}` + "\n" + `{"hash":{"index":1,"hash":"00"}}`, "digest"},
		"no digest":        {first + `{"node":"n"}` + "\n" + `{"hash":{"index":1,"hash":"` + strings.Repeat("x", 64) + `"}}`, "digest"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := Decode(strings.NewReader(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one that says %q", err, tt.want)
			}
		})
	}
}

// FuzzDecode shows that no bytes harm the reader or the checks, and that what is read is kept as it
// was read.
func FuzzDecode(f *testing.F) {
	small := build(shape{seed: 3, runs: 1, clients: 2, ops: 6, unknown: 0.2, duplicates: 0.3})
	// Large ones take the fuzzer minutes to make smaller.
	f.Add(encoded(f, small.history, small.finals[:1]))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, finals, err := Decode(bytes.NewReader(data))
		if err != nil {
			return
		}
		again := encoded(t, h, finals)
		h2, finals2, err := Decode(bytes.NewReader(again))
		if err != nil {
			t.Fatal(err)
		}
		if third := encoded(t, h2, finals2); !bytes.Equal(again, third) {
			t.Errorf("%s\nbecame\n%s", again, third)
		}
		r := Check(h, foldAll, finals...)
		_ = r.String()
		if len(h.Ops) < 20 {
			_ = CrossCheck(h, finals...) // Any verdict will do.
		}
	})
}

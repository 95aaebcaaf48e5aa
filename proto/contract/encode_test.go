package contract

import (
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"

	"runlog/proto/contract/jsontext"
)

// The samples of RFC 8785, appendix B.
func TestENV8NumbersAsECMAScript(t *testing.T) {
	for bits, want := range map[uint64]string{
		0x0000000000000000: "0",
		0x8000000000000000: "0",
		0x0000000000000001: "5e-324",
		0x8000000000000001: "-5e-324",
		0x7fefffffffffffff: "1.7976931348623157e+308",
		0xffefffffffffffff: "-1.7976931348623157e+308",
		0x4340000000000000: "9007199254740992",
		0xc340000000000000: "-9007199254740992",
		0x4430000000000000: "295147905179352830000",
		0x44b52d02c7e14af5: "9.999999999999997e+22",
		0x44b52d02c7e14af6: "1e+23",
		0x44b52d02c7e14af7: "1.0000000000000001e+23",
		0x444b1ae4d6e2ef4e: "999999999999999700000",
		0x444b1ae4d6e2ef4f: "999999999999999900000",
		0x444b1ae4d6e2ef50: "1e+21",
		0x3eb0c6f7a0b5ed8c: "9.999999999999997e-7",
		0x3eb0c6f7a0b5ed8d: "0.000001",
		0x41b3de4355555553: "333333333.3333332",
		0x41b3de4355555554: "333333333.33333325",
		0x41b3de4355555555: "333333333.3333333",
		0x41b3de4355555556: "333333333.3333334",
		0x41b3de4355555557: "333333333.33333343",
		0xbecbf647612f3696: "-0.0000033333333333333333",
		0x43143ff3c1cb0959: "1424953923781206.2",
	} {
		if got := string(appendDouble([]byte("x"), math.Float64frombits(bits))); got != "x"+want {
			t.Errorf("%016x: got %s, want %s", bits, got[1:], want)
		}
	}
}

// The sample of RFC 8785, section 3.2.3, and its strings.
func TestENV8StructAsCanonicalJSON(t *testing.T) {
	s, err := structpb.NewStruct(map[string]any{
		"\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh", "1": "One",
		"\U0001f600": "Emoji: Grinning Face", "\u0080": "Control", "\u00f6": "Latin Small Letter O With Diaeresis",
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"\r":"Carriage Return","1":"One","` + "\u0080" + `":"Control","ö":"Latin Small Letter O With Diaeresis",` +
		`"€":"Euro Sign","😀":"Emoji: Grinning Face","` + "\ufb33" + `":"Hebrew Letter Dalet With Dagesh"}`
	if got, _, fault := EncodeStruct(s); string(got) != want || fault != "" {
		t.Errorf("got %s %s", got, fault)
	}

	s, err = structpb.NewStruct(map[string]any{"html": "<&>\u2028", "escapes": "\"\\/\b\f\n\r\t\x01\x1f\x7f", "all": []any{nil, true, false, -1.5, map[string]any{}, []any{}}, "ab": 1, "a": 2})
	if err != nil {
		t.Fatal(err)
	}
	const second = `{"a":2,"ab":1,"all":[null,true,false,-1.5,{},[]],"escapes":"\"\\/\b\f\n\r\t\u0001\u001f` + "\x7f" + `","html":"<&>` + "\u2028" + `"}`
	if got, _, fault := EncodeStruct(s); string(got) != second || fault != "" {
		t.Errorf("got %s %s", got, fault)
	}
}

func TestENV8StructFaults(t *testing.T) {
	wrap := func(v *structpb.Value) *structpb.Struct {
		return &structpb.Struct{Fields: map[string]*structpb.Value{"a": structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{
			structpb.NewNullValue(), structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"b": v}}),
		}})}}
	}
	deep := structpb.NewNumberValue(1)
	for range MaxDepth {
		deep = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{deep}})
	}
	for name, c := range map[string]struct {
		s           *structpb.Struct
		path, fault string
	}{
		"NaN":         {wrap(structpb.NewNumberValue(math.NaN())), "/a/1/b", badStructNumber},
		"infinity":    {wrap(structpb.NewNumberValue(math.Inf(-1))), "/a/1/b", badStructNumber},
		"no kind":     {wrap(&structpb.Value{}), "/a/1/b", badStructValue},
		"nil":         {wrap(nil), "/a/1/b", badStructValue},
		"text":        {wrap(structpb.NewStringValue("\xff")), "/a/1/b", badStructText},
		"member name": {&structpb.Struct{Fields: map[string]*structpb.Value{"\xff": structpb.NewBoolValue(true)}}, "", badStructText},
		"depth":       {&structpb.Struct{Fields: map[string]*structpb.Value{"a": deep}}, "/a" + strings.Repeat("/0", MaxDepth-1), jsontext.FaultDepth.String()},
		"depth of objects": {wrap(structpb.NewStructValue(wrap(structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
			strings.Repeat("n", 300): structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"x": deep}}),
		}})))), "", jsontext.FaultDepth.String()},
	} {
		_, path, fault := EncodeStruct(c.s)
		if fault != c.fault || c.path != "" && path != c.path || len(path) > maxPathBytes {
			t.Errorf("%s: got %q %q, want %q %q", name, path, fault, c.path, c.fault)
		}
	}
}

// What a Struct is turned into means the same Struct.
func TestENV8StructKeepsItsMeaning(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawStruct(t, 3)
		text, _, fault := EncodeStruct(s)
		if fault != "" {
			t.Fatal(fault)
		}
		if _, fault := jsontext.CheckObject(text, MaxDepth); fault != 0 {
			t.Fatalf("%s: %s", text, fault)
		}
		back := &structpb.Struct{}
		if err := protojson.Unmarshal(text, back); err != nil || !proto.Equal(s, back) {
			t.Fatalf("%v: %s came back as %v", err, text, back)
		}
		if again, _, _ := EncodeStruct(back); string(again) != string(text) {
			t.Fatalf("%s, then %s", text, again)
		}
	})
}

func drawStruct(t *rapid.T, depth int) *structpb.Struct {
	s := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for range rapid.IntRange(0, 4).Draw(t, "members") {
		s.Fields[rapid.String().Draw(t, "name")] = drawValue(t, depth-1)
	}
	return s
}

func drawValue(t *rapid.T, depth int) *structpb.Value {
	kinds := 6
	if depth == 0 {
		kinds = 4
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return structpb.NewNullValue()
	case 1:
		return structpb.NewBoolValue(rapid.Bool().Draw(t, "bool"))
	case 2:
		// Minus zero has no JSON form of its own in RFC 8785.
		return structpb.NewNumberValue(rapid.Float64().Draw(t, "number") + 0)
	case 3:
		return structpb.NewStringValue(rapid.String().Draw(t, "string"))
	case 4:
		l := &structpb.ListValue{}
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			l.Values = append(l.Values, drawValue(t, depth-1))
		}
		return structpb.NewListValue(l)
	default:
		return structpb.NewStructValue(drawStruct(t, depth))
	}
}

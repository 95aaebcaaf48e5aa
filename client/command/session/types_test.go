package session

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestTypes: --type takes types with commas between them.
func TestTypes(t *testing.T) {
	for text, want := range map[string][]string{
		"RunFailed":              {"RunFailed"},
		"RunFailed,StepFailed":   {"RunFailed", "StepFailed"},
		"RunFailed, StepFailed ": {"RunFailed", "StepFailed"},
		`Custom\,1`:              {"Custom,1"},
		`A\,B,C\,,\,D`:           {"A,B", "C,", ",D"},
		`Custom"1`:               {`Custom"1`},
		`Back\slash`:             {`Back\slash`},
		"Two words,Three":        {"Two words", "Three"},
		"":                       nil,
		",":                      nil,
		"RunFailed,":             nil,
		",RunFailed":             nil,
		"RunFailed,,StepFailed":  nil,
		"RunFailed, ,StepFailed": nil,
	} {
		got := []string{"before"}
		err := (*typeList)(&got).Set(text)
		if (err == nil) != (want != nil) || !slices.Equal(got[1:], want) {
			t.Errorf("%q: %q, %v; want %q", text, got[1:], err, want)
		}
	}
}

// TestTypesAgain: the types that String writes are read again.
func TestTypesAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		types := rapid.SliceOfN(rapid.StringMatching(`[A-C,"]([A-C,\\" ]{0,4}[A-C,"])?`), 1, 4).Draw(t, "types")
		var got typeList
		if err := got.Set((*typeList)(&types).String()); err != nil || !slices.Equal(got, types) {
			t.Fatalf("%q is %q, %v", types, got, err)
		}
	})
}

package secret

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

const hunter = "hunter2-correct-horse"

func setOf(t testing.TB, values ...string) *Set {
	t.Helper()
	named := map[string]string{}
	for i, v := range values {
		named[fmt.Sprintf("env:S%d", i)] = v
	}
	s, err := NewSet(named)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestValueNeverPrintsENG7 prints values, and what has them in unexported fields, in all ways.
func TestValueNeverPrintsENG7(t *testing.T) {
	t.Parallel()
	set := setOf(t, hunter)
	v, err := set.Get("env:S0")
	if err != nil {
		t.Fatal(err)
	}
	if v.Reveal() != hunter || (Value{}).Reveal() != "" {
		t.Fatal("Reveal does not return the secret")
	}
	type holder struct {
		value  Value
		Value  Value
		Ptr    *Value
		Map    map[Value]Value
		set    *Set
		nested struct{ v Value }
	}
	h := holder{v, v, &v, map[Value]Value{v: v}, set, struct{ v Value }{v}}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%p", "%w"} {
		for _, x := range []any{v, &v, h, &h, []Value{v}, set, *set, set.Redactor()} {
			fmt.Fprintf(&out, verb+"\n", x)
		}
	}
	text, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	out.Write(text)
	for _, handler := range []slog.Handler{slog.NewJSONHandler(&out, nil), slog.NewTextHandler(&out, nil)} {
		slog.New(handler).Info("value", "v", v, "p", &v, "h", h, "set", set, "group", slog.GroupValue(slog.Any("v", v)))
	}
	fmt.Fprint(&out, v, errors.New(fmt.Sprint(v)), fmt.Sprintln(v))
	for _, leak := range []string{hunter, fmt.Sprintf("%x", hunter), fmt.Sprintf("%X", hunter)} {
		if strings.Contains(out.String(), leak) {
			t.Fatalf("printed: %s", out.String())
		}
	}
	if !strings.Contains(string(text), `"Value":"[secret]"`) {
		t.Errorf("want [secret] in JSON, got %s", text)
	}
}

// TestSetRefusesENG7: values that would be found everywhere, or that are too many, make no Set.
func TestSetRefusesENG7(t *testing.T) {
	t.Parallel()
	many := map[string]string{}
	for i := range MaxValues + 1 {
		many[fmt.Sprint("env:", i)] = hunter
	}
	for _, tt := range []struct {
		values map[string]string
		want   string
	}{
		{map[string]string{"env:A": "", "env:B": "abc"}, "secret env:A: the value cannot be used: it has fewer than 4 bytes"},
		{map[string]string{"env:A": "", "env:B": "xyz"}, "secret env:B: the value cannot be used"},
		{map[string]string{"env:A": strings.Repeat("x", MaxBytes+1)}, "secret env:A: the value cannot be used: it has more than 65536 bytes"},
		{many, "a step has 51 secrets, at most 50"},
	} {
		s, err := NewSet(tt.values)
		if s != nil || err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "xyz") {
			t.Errorf("want %q, got %v", tt.want, err)
		}
	}
	var none *Set
	if _, err := none.Get("env:A"); !errors.Is(err, ErrNotFound) || none.Refs() != nil || none.Redactor().Text(hunter) != hunter {
		t.Errorf("a nil Set is not empty: %v", err)
	}
	if _, err := setOf(t, hunter).Get("env:other"); !errors.Is(err, ErrNotFound) {
		t.Errorf("want ErrNotFound, got %v", err)
	}
}

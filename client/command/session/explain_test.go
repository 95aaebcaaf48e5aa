package session

import (
	"errors"
	"testing"

	"runlog/client/command/output"
)

func TestExplainNamesEveryFault(t *testing.T) {
	code, text := new(Session).Explain(output.WithHint(errors.Join(output.UsageError("one"), output.UsageError("two")), "mend them"))
	if code != output.ExitUsage || text != "one; two; mend them" {
		t.Errorf("%d, %q", code, text)
	}
	if _, text := new(Session).Explain(output.WithHint(errors.New("It has ended."), "mend it")); text != "It has ended; mend it" {
		t.Errorf("a sentence and a hint: %q", text)
	}
}

func TestInnermost(t *testing.T) {
	for message, want := range map[string]string{
		`connection error: desc = "transport: dial tcp 1.2.3.4:5: connect: connection refused"`: "connection refused",
		"plain": "plain",
		"name resolver error: produced zero addresses": "no host of that name",
	} {
		if got := Innermost(message); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

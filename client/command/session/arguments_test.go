package session

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestArguments: too few and too many arguments are refused, with what the command takes.
func TestArguments(t *testing.T) {
	check := Arguments(1, 2, "a file and at most one name")
	for n, want := range []string{
		"verify takes a file and at most one name, not 0 arguments", "", "", "verify takes a file and at most one name, not 3 arguments",
	} {
		text := ""
		if err := check(&cobra.Command{Use: "verify FILE [NAME]"}, make([]string, n)); err != nil {
			text = err.Error()
		}
		if text != want {
			t.Errorf("%d arguments: %q, want %q", n, text, want)
		}
	}
}

// TestGroup: a group alone prints its help, and names the command that a mistyped one is close to.
func TestGroup(t *testing.T) {
	for line, want := range map[string]string{
		"":        "Show and steer queues",
		"pause":   "paused",
		"puase":   `unknown command "puase" for "queue" (did you mean pause?)`,
		"unknown": `unknown command "unknown" for "queue"`,
	} {
		var out strings.Builder
		pause := &cobra.Command{Use: "pause", Run: func(cmd *cobra.Command, _ []string) { cmd.Println("paused") }}
		group := Group(&cobra.Command{Use: "queue", Short: "Show and steer queues", SilenceErrors: true, SilenceUsage: true}, pause)
		group.SetOut(&out)
		group.SetErr(&out)
		group.SetArgs(strings.Fields(line))
		if err := group.Execute(); err != nil {
			out.WriteString(err.Error())
		}
		if !strings.HasPrefix(out.String(), want) {
			t.Errorf("%q: %q, want %q", line, out.String(), want)
		}
	}
}

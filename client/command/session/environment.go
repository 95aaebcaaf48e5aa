package session

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"runlog/client/command/output"
)

// Variable returns the name of the environment variable of a flag.
func Variable(flag string) string {
	return "RUNLOG_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// injected matches the variables that Kubernetes and Docker set for a service whose name begins
// with runlog.
var injected = regexp.MustCompile(`^RUNLOG_(.+_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// CheckEnvironment refuses variables that look like runlog's and are not: a typing error would
// otherwise leave a flag at its default without a word. known are those of the flags of serve.
func (s *Session) CheckEnvironment(known []string) error {
	if s.Environ == nil {
		return nil
	}
	known = slices.Clone(known)
	for _, flag := range connectionFlags {
		if hasVariable(flag) {
			known = append(known, Variable(flag))
		}
	}
	for _, line := range slices.Sorted(slices.Values(s.Environ())) {
		name, _, _ := strings.Cut(line, "=")
		if !strings.HasPrefix(name, "RUNLOG_") || slices.Contains(known, name) || injected.MatchString(name) {
			continue
		}
		return output.UsageError("unknown environment variable %s; %s", name,
			Suggest(name, known, "unset it; runlog serve --help lists the flags, and each has a variable"))
	}
	return nil
}

// Suggest asks whether one of the known names was meant, else it returns a hint.
func Suggest(name string, known []string, hint string) string {
	// cobra's suggestions for a mistyped command, with the names as commands.
	parent := cobra.Command{SuggestionsMinimumDistance: 3}
	for _, k := range known {
		parent.AddCommand(&cobra.Command{Use: k, Run: func(*cobra.Command, []string) {}})
	}
	near := parent.SuggestionsFor(name)
	if len(near) == 0 {
		return hint
	}
	return fmt.Sprintf("did you mean %s?", strings.Join(near, " or "))
}

package session

import (
	"github.com/spf13/pflag"

	"runlog/client/command/output"
)

// RefuseEmpty refuses flags that are given without a value. If a variable of a script is not set,
// the command must neither select everything nor make an id of its own.
func RefuseEmpty(flags *pflag.FlagSet, names ...string) error {
	for _, name := range names {
		f := flags.Lookup(name)
		// [] is pflag's text of an empty list.
		if text := f.Value.String(); f.Changed && (text == "" || text == "[]") {
			return output.UsageError("--%s is empty; give a value, or leave the flag out", name)
		}
	}
	return nil
}

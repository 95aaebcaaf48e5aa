package session

import (
	"errors"
	"strconv"

	"github.com/spf13/pflag"
)

// limit is the value of the flag --limit; 0 is no limit.
type limit uint64

// LimitFlag adds the flag --limit to a command that lists things.
func LimitFlag(flags *pflag.FlagSet, n *uint64, ordinary uint64, usage string) {
	*n = ordinary
	flags.Var((*limit)(n), "limit", usage+"; 0 means all")
}

// String returns the number.
func (l *limit) String() string { return strconv.FormatUint(uint64(*l), 10) }

// Set takes the value from the command line.
func (l *limit) Set(value string) error {
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		return errors.New("want a number such as 100; 0 means all")
	}
	*l = limit(n)
	return nil
}

// Type names the value in the help.
func (l *limit) Type() string { return "uint" }

// PageSize returns the size of the pages to ask for; 0 leaves it to the server.
func PageSize(limit uint64) uint32 { return uint32(min(limit, 1000)) }

package main

import (
	"errors"
	"strconv"

	"github.com/spf13/pflag"
)

// limit is the value of --limit: how many things are listed at most, 0 being all.
type limit uint64

// limitFlag adds --limit for things that are listed.
func limitFlag(flags *pflag.FlagSet, n *uint64, ordinary uint64, usage string) {
	*n = ordinary
	flags.Var((*limit)(n), "limit", usage+"; 0 means all")
}

// String returns the number.
func (l *limit) String() string { return strconv.FormatUint(uint64(*l), 10) }

// Set takes the value from the command line.
func (l *limit) Set(value string) error {
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		return errors.New("want how many at most, such as 100; 0 means all")
	}
	*l = limit(n)
	return nil
}

// Type names the value in the help.
func (l *limit) Type() string { return "uint" }

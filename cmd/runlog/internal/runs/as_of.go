package runs

import (
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/client/command/output"
	"runlog/client/command/session"
)

// asOf are the flags that name a moment.
type asOf struct {
	seq            uint64
	time, position string
}

// asOfFlags name moments. A command takes one of them.
var asOfFlags = [...]string{"as-of-seq", "as-of-time", "as-of-position"}

// addFlags adds the flags of a command that shows something of one run. does says what it does.
func (at *asOf) addFlags(flags *pflag.FlagSet, does string) {
	flags.Uint64Var(&at.seq, asOfFlags[0], 0, does+" as it was after the event with this runSeq; 0: before the first one")
	at.addRunsFlags(flags, does+" as it was")
}

// addRunsFlags adds the flags that name moments of all runs.
func (at *asOf) addRunsFlags(flags *pflag.FlagSet, does string) {
	flags.StringVar(&at.time, asOfFlags[1], "", does+" at this time, by when events were persisted")
	flags.StringVar(&at.position, asOfFlags[2], "", does+" at this position of an answer")
}

// moment returns the runSeq and the time that flags name; nil: they name another moment.
func (at *asOf) moment(flags *pflag.FlagSet, now time.Time) (seq *uint64, t *timestamppb.Timestamp, err error) {
	named := ""
	for _, flag := range asOfFlags {
		if !flags.Changed(flag) {
			continue
		}
		if named != "" {
			return nil, nil, output.UsageError("--%s and --%s both name a moment; use only one", named, flag)
		}
		named = flag
	}
	switch named {
	case asOfFlags[0]:
		return &at.seq, nil, nil
	case asOfFlags[1]:
		t, err = session.Moment(named, at.time, now)
	case asOfFlags[2]:
		if at.position == "" {
			err = output.UsageError("--%s is empty; want the position of an answer", named)
		}
	}
	return nil, t, err
}

package session

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
)

// Duration is the value of a flag that says nothing unless it is given: Value is nil then.
type Duration struct{ Value *durationpb.Duration }

// String returns the duration; empty: the flag is not given.
func (d *Duration) String() string {
	if d.Value == nil {
		return ""
	}
	return d.Value.AsDuration().String()
}

// Set takes the value from the command line.
func (d *Duration) Set(text string) error {
	v, err := time.ParseDuration(text)
	if err == nil {
		d.Value = durationpb.New(v)
	}
	return err
}

// Type names the value in the help.
func (d *Duration) Type() string { return "duration" }

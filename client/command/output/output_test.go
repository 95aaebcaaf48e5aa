package output

import (
	"errors"
	"strings"
	"testing"

	runlogv1 "runlog/proto/runlog/v1"
)

// TestOneAnswer: what was done is a sentence, and what a thing is are its facts, both on one line.
// As JSON, both are one object: a message in proto-JSON with all its fields, another value by its
// tags.
func TestOneAnswer(t *testing.T) {
	line := struct {
		Done bool `json:"isDone"`
	}{true}
	message := &runlogv1.ListTokensRequest{PageSize: 7}
	for name, tt := range map[string]struct {
		format Format
		write  func(o *Output) error
		want   string
	}{
		"a sentence":             {Text, func(o *Output) error { return o.Tell("all is\ndone", line) }, "all is done\n"},
		"a sentence as JSON":     {JSON, func(o *Output) error { return o.Tell("all is done", line) }, `{"isDone":true}` + "\n"},
		"a message of a call":    {JSON, func(o *Output) error { return o.Tell("all is done", message) }, `{"pageSize":7,"pageToken":""}` + "\n"},
		"facts":                  {Text, func(o *Output) error { return o.Show(line, [2]string{"Name", "a\nb"}, [2]string{"None", ""}) }, "Name  a b\n"},
		"facts as JSON":          {JSON, func(o *Output) error { return o.Show(line, [2]string{"Name", "a"}) }, `{"isDone":true}` + "\n"},
		"facts as proto-JSON":    {JSON, func(o *Output) error { return o.Show(message, [2]string{"Name", "a"}) }, `{"pageSize":7,"pageToken":""}` + "\n"},
		"the default is a table": {"", func(o *Output) error { return o.Show(message, [2]string{"Name", "a"}) }, "Name  a\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if err := tt.write(&Output{Stdout: &out, Format: tt.format}); err != nil || out.String() != tt.want {
				t.Errorf("wrote %q, %v; want %q", out.String(), err, tt.want)
			}
			if err := tt.write(&Output{Stdout: full{}, Format: tt.format}); !errors.Is(err, errFull) {
				t.Errorf("into a full pipe: %v", err)
			}
		})
	}
}

var errFull = errors.New("full")

// full takes nothing.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

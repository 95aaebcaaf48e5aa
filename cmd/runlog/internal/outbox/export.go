package outbox

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"runlog/client/command/output"
	"runlog/client/command/session"
	"runlog/client/outbox"
	"runlog/proto/contract/jsontext"
	runlogv1 "runlog/proto/runlog/v1"
)

// The values of the flag --state.
const (
	statePending  = "pending"
	stateRejected = "rejected"
	stateAll      = "all"
)

func (a *app) exportCommand() *cobra.Command {
	state := stateAll
	cmd := &cobra.Command{
		Use:   "export FILE",
		Short: "Write the events of an outbox as JSON lines",
		Long: `Write the events of an outbox to the standard output, one JSON object a line, as "runlog append" reads
them. Payloads keep their bytes. An engine may have the outbox open. The command changes nothing: the
records stay in the outbox.

A line cannot have the expectedLastSeq or the fence of a request: stderr names the records that have one.
If the file is damaged, the events that can be read are written, stderr says what is lost, and the exit
code is 8.`,
		Example: "  runlog outbox export runlog.outbox --state rejected > rejected.jsonl",
		Args:    oneFile,
		RunE:    func(_ *cobra.Command, args []string) error { return a.export(args[0], state) },
	}
	cmd.Flags().StringVar(&state, "state", state, "the records to write: pending, rejected or all")
	session.Complete(cmd, "state", statePending, stateRejected, stateAll)
	return cmd
}

func (a *app) export(path, state string) error {
	if state != statePending && state != stateRejected && state != stateAll {
		return output.UsageError("--state %q is not pending, rejected or all", state)
	}
	v, err := outbox.Read(path)
	if err != nil {
		return fileError(err)
	}
	defer v.Close()
	out := bufio.NewWriter(a.Stdout)
	unreadable := 0
	for r, err := range readable(v.Records(), &unreadable) {
		if err != nil {
			return errors.Join(err, out.Flush())
		}
		if is := rowOf(r).State; state != stateAll && state != is {
			continue
		}
		if r.Request.ExpectedLastSeq != nil || r.Request.Fence != nil {
			fmt.Fprintf(a.Stderr, "warning: record %d has an expectedLastSeq or a fence, which its lines lack\n", r.ID)
		}
		for _, e := range r.Request.GetEvents() {
			line, err := eventLine(r.Request.GetRunId(), e)
			if err != nil {
				return errors.Join(fmt.Errorf("record %d: %w", r.ID, err), out.Flush())
			}
			fmt.Fprintf(out, "%s\n", line)
		}
	}
	return errors.Join(out.Flush(), a.judge(path, v.Recovery(), unreadable))
}

// eventLine encodes an event as a line for runlog append. Payload and extensions keep their bytes
// (ENV-8).
func eventLine(run string, e *runlogv1.EventWrite) ([]byte, error) {
	bare := proto.CloneOf(e)
	if bare.RunId == "" {
		bare.RunId = run
	}
	payload, asText := bare.GetPayloadForm().(*runlogv1.EventWrite_PayloadJson)
	if asText {
		bare.PayloadForm = nil
	}
	extensions := bare.ExtensionsJson
	bare.ExtensionsJson = nil
	text, err := protojson.Marshal(bare)
	if err != nil {
		return nil, err
	}
	// protojson adds blanks at random.
	var line bytes.Buffer
	if err := json.Compact(&line, text); err != nil {
		return nil, err
	}
	b := bytes.TrimSuffix(line.Bytes(), []byte("}"))
	if len(extensions) > 0 {
		if b, err = appendMember(b, "extensions", extensions); err != nil {
			return nil, err
		}
	}
	if asText {
		if b, err = appendMember(b, "payload", payload.PayloadJson); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// appendMember appends a member of which the value is JSON. The server would refuse another one.
func appendMember(b []byte, member string, object []byte) ([]byte, error) {
	if !json.Valid(object) {
		return nil, fmt.Errorf("encode event: %s is not JSON", member)
	}
	return jsontext.AppendInLine(b, member, object), nil
}

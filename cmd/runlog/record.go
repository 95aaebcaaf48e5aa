package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	runlogv1 "runlog/proto/runlog/v1"
)

// outputFormat is the value of --output.
type outputFormat string

const (
	formatTable outputFormat = "table"
	formatJSON  outputFormat = "json"
)

// String returns the format by name; the zero value is the default.
func (f *outputFormat) String() string {
	if *f == "" {
		*f = formatTable
	}
	return string(*f)
}

// Set takes the value from the command line.
func (f *outputFormat) Set(value string) error {
	switch outputFormat(value) {
	case formatTable, formatJSON:
		*f = outputFormat(value)
		return nil
	default:
		return fmt.Errorf("want table or json")
	}
}

// Type names the value in the help.
func (f *outputFormat) Type() string { return "format" }

// wireJSON writes every scalar, so that a script finds the same fields on every line.
var wireJSON = protojson.MarshalOptions{EmitDefaultValues: true}

// jsonLine returns a message in proto-JSON on one line, without the line feed.
func jsonLine(message proto.Message) ([]byte, error) {
	text, err := wireJSON.Marshal(message)
	if err != nil {
		return nil, err
	}
	// protojson puts blanks in at random, against golden files; ours shall compare.
	var line bytes.Buffer
	if err := json.Compact(&line, text); err != nil {
		return nil, err
	}
	return line.Bytes(), nil
}

// recordLine returns an event as jsonLine does, with its payload as the bytes that were stored
// (ENV-8): as an object, or where a line cannot hold them, since they have line breaks or blanks
// around them, as payloadJson in base64. What it was without these has another digest, and could
// not be imported.
func recordLine(record *runlogv1.EventRecord) ([]byte, error) {
	form, ok := record.GetPayloadForm().(*runlogv1.EventRecord_PayloadJson)
	if !ok {
		return jsonLine(record)
	}
	record.PayloadForm = nil
	line, err := jsonLine(record)
	record.PayloadForm = form
	if err != nil {
		return nil, err
	}
	payload := form.PayloadJson
	if !json.Valid(payload) {
		return nil, fmt.Errorf("the payload of runSeq %d is not JSON", record.GetRunSeq())
	}
	line = bytes.TrimSuffix(line, []byte("}"))
	if bytes.ContainsAny(payload, "\n\r") || payload[0] != '{' || payload[len(payload)-1] != '}' {
		line = base64.StdEncoding.AppendEncode(append(line, `,"payloadJson":"`...), payload)
		return append(line, `"}`...), nil
	}
	return append(append(append(line, `,"payload":`...), payload...), '}'), nil
}

// payloadText returns an event's payload on one line.
func payloadText(record *runlogv1.EventRecord) string {
	if object := record.GetPayload(); object != nil {
		if line, err := jsonLine(object); err == nil {
			return string(line)
		}
	}
	var line bytes.Buffer
	if err := json.Compact(&line, record.GetPayloadJson()); err != nil {
		return string(record.GetPayloadJson())
	}
	return line.String()
}

package output

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	runlogv1 "runlog/proto/runlog/v1"
)

// wireJSON writes every scalar, so that every line has the same fields.
var wireJSON = protojson.MarshalOptions{EmitDefaultValues: true}

// JSONLine encodes a message as proto-JSON on one line, without the line feed.
func JSONLine(message proto.Message) ([]byte, error) {
	text, err := wireJSON.Marshal(message)
	if err != nil {
		return nil, err
	}
	// protojson adds blanks at random; golden files need a stable text.
	var line bytes.Buffer
	if err := json.Compact(&line, text); err != nil {
		return nil, err
	}
	return line.Bytes(), nil
}

// RecordLine encodes an event as JSONLine does, with its payload byte for byte as it was stored
// (ENV-8). The payload is an object in the line. If it has line breaks, or blanks around it, it is
// payloadJson in base64: without them it would have another digest and could not be imported.
func RecordLine(record *runlogv1.EventRecord) ([]byte, error) {
	form, ok := record.GetPayloadForm().(*runlogv1.EventRecord_PayloadJson)
	if !ok {
		return JSONLine(record)
	}
	record.PayloadForm = nil
	line, err := JSONLine(record)
	record.PayloadForm = form
	if err != nil {
		return nil, err
	}
	payload := form.PayloadJson
	if !json.Valid(payload) {
		return nil, fmt.Errorf("encode event: the payload of runSeq %d is not JSON", record.GetRunSeq())
	}
	line = bytes.TrimSuffix(line, []byte("}"))
	if bytes.ContainsAny(payload, "\n\r") || payload[0] != '{' || payload[len(payload)-1] != '}' {
		line = base64.StdEncoding.AppendEncode(append(line, `,"payloadJson":"`...), payload)
		return append(line, `"}`...), nil
	}
	return append(append(append(line, `,"payload":`...), payload...), '}'), nil
}

// PayloadText returns an event's payload on one line.
func PayloadText(record *runlogv1.EventRecord) string {
	if object := record.GetPayload(); object != nil {
		if line, err := JSONLine(object); err == nil {
			return string(line)
		}
	}
	var line bytes.Buffer
	if err := json.Compact(&line, record.GetPayloadJson()); err != nil {
		return string(record.GetPayloadJson())
	}
	return line.String()
}

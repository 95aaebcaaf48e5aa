package output

import (
	"bytes"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"runlog/proto/contract/jsontext"
	runlogv1 "runlog/proto/runlog/v1"
)

// wireJSON writes every scalar, so that every line has the same fields.
var wireJSON = protojson.MarshalOptions{EmitDefaultValues: true}

// JSONLine encodes a message as proto-JSON on one line, without the line feed. It is what List
// takes for messages.
func JSONLine[M proto.Message](message M) ([]byte, error) {
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

// RecordLine encodes an event as JSONLine does, with its payload and extensions byte for byte as
// they were stored (ENV-8). Each is an object in the line. If it has line breaks, or blanks around
// it, it is in base64, as payloadJson or extensionsJson: without them it would have another digest
// and could not be imported.
func RecordLine(record *runlogv1.EventRecord) ([]byte, error) {
	form, ok := record.GetPayloadForm().(*runlogv1.EventRecord_PayloadJson)
	if !ok {
		return JSONLine(record)
	}
	extensions := record.ExtensionsJson
	record.PayloadForm, record.ExtensionsJson = nil, nil
	line, err := JSONLine(record)
	record.PayloadForm, record.ExtensionsJson = form, extensions
	if err != nil {
		return nil, err
	}
	if !json.Valid(form.PayloadJson) || extensions != nil && !json.Valid(extensions) {
		return nil, fmt.Errorf("encode event: the payload or the extensions of runSeq %d are not JSON", record.GetRunSeq())
	}
	line = bytes.TrimSuffix(line, []byte("}"))
	if extensions != nil {
		line = jsontext.AppendInLine(line, "extensions", extensions)
	}
	return append(jsontext.AppendInLine(line, "payload", form.PayloadJson), '}'), nil
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

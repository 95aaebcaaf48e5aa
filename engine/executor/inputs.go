package executor

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// ParseInputs decodes the inputs of a task into a struct. Unknown members are refused: a misspelt
// one would be ignored.
func ParseInputs(task Task, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(task.Inputs))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	if err == nil {
		if _, trailing := decoder.Token(); !errors.Is(trailing, io.EOF) {
			err = errors.New("there is more text after the value")
		}
	}
	if err != nil {
		return Fail(CodeInputsInvalid, "cannot read the inputs of the step: %v: correct the plan", err)
	}
	return nil
}

// Reveal returns the secret with a reference, or a permanent error.
func Reveal(task Task, ref string) (string, error) {
	value, err := task.Secrets.Get(ref)
	if err != nil {
		return "", Fail(CodeSecretMissing, "%v", err)
	}
	return value.Reveal(), nil
}

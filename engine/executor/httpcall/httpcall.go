package httpcall

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"runlog/engine/executor"
)

// Executor sends requests.
type Executor struct{ client *Client }

var _ executor.Executor = (*Executor)(nil)

// New returns an Executor.
func New(client *Client) *Executor { return &Executor{client} }

type secretHeader struct {
	Ref    string `json:"ref"`
	Prefix string `json:"prefix"`
}

// inputs are those of a step.
type inputs struct {
	Method        string                  `json:"method"`
	URL           string                  `json:"url"`
	Headers       map[string]string       `json:"headers"`
	SecretHeaders map[string]secretHeader `json:"secretHeaders"`
	Body          json.RawMessage         `json:"body"`
}

// Execute sends the request.
func (e *Executor) Execute(ctx context.Context, task executor.Task) (executor.Result, error) {
	var in inputs
	if err := executor.ParseInputs(task, &in); err != nil {
		return executor.Result{}, err
	}
	header, err := headerOf(task, in)
	if err != nil {
		return executor.Result{}, err
	}
	if in.Method == "" {
		in.Method = http.MethodGet
		if len(in.Body) > 0 {
			in.Method = http.MethodPost
		}
	}
	answer, err := e.client.Do(ctx, Request{in.Method, in.URL, header, in.Body, task.Secrets.Redactor()})
	if err != nil {
		return executor.Result{}, err
	}
	output, err := json.Marshal(struct {
		Status      int             `json:"status"`
		ContentType string          `json:"contentType,omitempty"`
		Body        json.RawMessage `json:"body"`
	}{answer.Status, answer.Header.Get("Content-Type"), jsonOf(answer.Body)})
	if err != nil {
		return executor.Result{}, executor.Fail(executor.CodeOutputInvalid, "cannot encode the answer: %v", err)
	}
	return executor.Result{Output: output}, nil
}

// jsonOf returns a body as JSON: as it is, or as a text.
func jsonOf(body []byte) json.RawMessage {
	switch {
	case len(body) == 0:
		return json.RawMessage("null")
	case utf8.Valid(body) && json.Valid(body):
		return body
	}
	text, _ := json.Marshal(string(body)) // A string cannot fail.
	return text
}

const idempotencyKey = "Idempotency-Key"

// fixed lists the headers that a plan cannot set.
var fixed = map[string]bool{
	idempotencyKey: true, "Host": true, "Content-Length": true, "Transfer-Encoding": true, "Connection": true, "Te": true, "Trailer": true,
	"Upgrade": true, "Keep-Alive": true, "Proxy-Connection": true, "Proxy-Authorization": true,
}

// headerOf returns the header of a request. Errors name a header, and never its value.
func headerOf(task executor.Task, in inputs) (http.Header, error) {
	header := http.Header{idempotencyKey: {IdempotencyKey(task)}, "User-Agent": {"runlog"}}
	if len(in.Body) > 0 {
		header.Set("Content-Type", "application/json")
	}
	add := func(name, value string) error {
		canonical := http.CanonicalHeaderKey(name)
		if fixed[canonical] || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return executor.Fail(executor.CodeInputsInvalid, "the header %.100q is malformed, or is not for plans: correct the plan", name)
		}
		header.Set(canonical, value)
		return nil
	}
	for name, value := range in.Headers {
		if err := add(name, value); err != nil {
			return nil, err
		}
	}
	for name, from := range in.SecretHeaders {
		value, err := executor.Reveal(task, from.Ref)
		if err == nil {
			err = add(name, from.Prefix+value)
		}
		if err != nil {
			return nil, err
		}
	}
	return header, nil
}

// IdempotencyKey returns 32 hexadecimal digits that are the same for all tries of a logical
// attempt.
func IdempotencyKey(task executor.Task) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d|%s|%d|%s|%d", len(task.RunID), task.RunID, len(task.StepID), task.StepID, task.LogicalAttempt))
	return hex.EncodeToString(sum[:16])
}

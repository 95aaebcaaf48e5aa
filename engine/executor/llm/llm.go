package llm

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"

	"runlog/engine/executor"
	"runlog/engine/executor/httpcall"
	"runlog/engine/secret"
)

// The codes of errors, beside those of httpcall.
const (
	CodeResponse  = "LLM_RESPONSE_INVALID"
	CodePolicy    = "LLM_POLICY_FAILED"
	CodeViolation = "LLM_POLICY_VIOLATION"
)

// Options of an Executor.
type Options struct {
	Client *httpcall.Client
	// BaseURL stands before /chat/completions, such as https://llm.example/v1.
	BaseURL string
	// Model is that of steps without one.
	Model string
	// APIKey is the reference of the key of steps without one, which KeyProvider resolves. Empty:
	// the server wants none.
	APIKey      string
	KeyProvider secret.Provider
	// Policy has the rules for all answers. Nil: there are none.
	Policy Policy
}

// Executor asks a model.
type Executor struct{ o Options }

var _ executor.Keyed = (*Executor)(nil)

// New checks the options.
func New(o Options) (*Executor, error) {
	if o.Client == nil || o.BaseURL == "" {
		return nil, errors.New("llm: there is no client or no base URL: set both")
	}
	if o.APIKey != "" && o.KeyProvider == nil {
		return nil, errors.New("llm: there is no provider of the key: set KeyProvider")
	}
	o.BaseURL = strings.TrimSuffix(o.BaseURL, "/")
	return &Executor{o}, nil
}

// Secrets resolves the key of the worker.
func (e *Executor) Secrets(ctx context.Context) (*secret.Set, error) {
	if e.o.APIKey == "" {
		return nil, nil
	}
	return e.o.KeyProvider.Resolve(ctx, []string{e.o.APIKey}, secret.Scope{})
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// inputs are those of a step.
type inputs struct {
	Model       string        `json:"model"`
	Messages    []message     `json:"messages"`
	Temperature *float64      `json:"temperature"`
	MaxTokens   *int          `json:"maxTokens"`
	APIKey      string        `json:"apiKey"`
	Policy      *RulesOptions `json:"policy"`
}

// Execute asks the model, and checks its answer.
func (e *Executor) Execute(ctx context.Context, task executor.Task) (executor.Result, error) {
	var in inputs
	if err := executor.ParseInputs(task, &in); err != nil {
		return executor.Result{}, err
	}
	if in.Model == "" {
		in.Model = e.o.Model
	}
	if in.APIKey == "" {
		in.APIKey = e.o.APIKey
	}
	policies, err := e.policies(in)
	if err != nil {
		return executor.Result{}, err
	}
	request, err := e.request(task, in)
	if err != nil {
		return executor.Result{}, err
	}
	response, err := e.o.Client.Do(ctx, request)
	if err != nil {
		return executor.Result{}, err
	}
	answer, err := parse(response.Body)
	if err != nil {
		return executor.Result{}, err
	}
	for _, p := range policies {
		if err := check(ctx, p, answer.Text); err != nil {
			return executor.Result{}, err
		}
	}
	output, err := json.Marshal(answer)
	if err != nil {
		return executor.Result{}, executor.Fail(executor.CodeOutputInvalid, "cannot encode the answer: %v", err)
	}
	return executor.Result{Output: output}, nil
}

// policies returns that of the worker and that of the step, and checks the inputs.
func (e *Executor) policies(in inputs) (policies []Policy, err error) {
	fault := ""
	switch {
	case in.Model == "":
		fault = "model is empty"
	case len(in.Messages) == 0:
		fault = "messages is empty"
	case in.Temperature != nil && (*in.Temperature < 0 || *in.Temperature > 2):
		fault = "temperature is none of 0 to 2"
	case in.MaxTokens != nil && *in.MaxTokens < 1:
		fault = "maxTokens is less than 1"
	}
	for _, m := range in.Messages {
		if m.Role == "" {
			fault = "a message has no role"
		}
	}
	if fault != "" {
		return nil, executor.Fail(executor.CodeInputsInvalid, "%s: correct the plan", fault)
	}
	if e.o.Policy != nil {
		policies = append(policies, e.o.Policy)
	}
	if in.Policy != nil {
		rules, err := NewRules(*in.Policy)
		if err != nil {
			return nil, executor.Fail(executor.CodeInputsInvalid, "%v: correct the plan", err)
		}
		policies = append(policies, rules)
	}
	return policies, nil
}

func (e *Executor) request(task executor.Task, in inputs) (httpcall.Request, error) {
	body, err := json.Marshal(struct {
		Model       string    `json:"model"`
		Messages    []message `json:"messages"`
		Temperature *float64  `json:"temperature,omitempty"`
		MaxTokens   *int      `json:"max_tokens,omitempty"`
		Stream      bool      `json:"stream"`
	}{in.Model, in.Messages, in.Temperature, in.MaxTokens, false})
	if err != nil {
		return httpcall.Request{}, executor.Fail(executor.CodeInputsInvalid, "cannot encode the request: %v", err)
	}
	header := http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json"}, "User-Agent": {"runlog"},
		"Idempotency-Key": {httpcall.IdempotencyKey(task)},
	}
	if in.APIKey != "" {
		key, err := executor.Reveal(task, in.APIKey)
		if err != nil {
			return httpcall.Request{}, err
		}
		if !httpguts.ValidHeaderFieldValue(key) {
			return httpcall.Request{}, executor.Fail(executor.CodeInputsInvalid, "the secret %s has characters that no header may have: replace it", in.APIKey)
		}
		header.Set("Authorization", "Bearer "+key)
	}
	return httpcall.Request{Method: http.MethodPost, URL: e.o.BaseURL + "/chat/completions", Header: header, Body: body, Redactor: task.Secrets.Redactor()}, nil
}

type usage struct {
	Prompt     int64 `json:"promptTokens"`
	Completion int64 `json:"completionTokens"`
	Total      int64 `json:"totalTokens"`
}

// answer is the output of a step.
type answer struct {
	Text         string `json:"text"`
	Model        string `json:"model"`
	FinishReason string `json:"finishReason,omitempty"`
	Usage        usage  `json:"usage"`
}

// parse reads the first choice of a completion. A model may answer better the next time, so a bad
// answer is retryable. Its error repeats nothing of it: no policy has seen it.
func parse(body []byte) (answer, error) {
	var completion struct {
		Model   string `json:"model"`
		Choices []struct {
			Message struct {
				Content *string `json:"content"`
			} `json:"message"`
			FinishReason string `json:"finish_reason"`
		} `json:"choices"`
		Usage struct {
			Prompt     int64 `json:"prompt_tokens"`
			Completion int64 `json:"completion_tokens"`
			Total      int64 `json:"total_tokens"`
		} `json:"usage"`
	}
	if json.Unmarshal(body, &completion) != nil {
		return answer{}, executor.Retry(CodeResponse, "the answer is no JSON of a chat completion")
	}
	if len(completion.Choices) == 0 || completion.Choices[0].Message.Content == nil {
		return answer{}, executor.Retry(CodeResponse, "the answer has no text")
	}
	first := completion.Choices[0]
	return answer{*first.Message.Content, completion.Model, first.FinishReason, usage(completion.Usage)}, nil
}

// check asks a policy.
func check(ctx context.Context, p Policy, text string) error {
	err := p.Check(ctx, text)
	if err == nil {
		return nil
	}
	if violation, ok := errors.AsType[*Violation](err); ok {
		return executor.Fail(CodeViolation, "the answer breaks the rule %s: %s", violation.Rule, violation.Detail)
	}
	return executor.Retry(CodePolicy, "cannot check the answer: %v", err)
}

package llm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"runlog/engine/executor"
	"runlog/engine/executor/httpcall"
	"runlog/engine/executor/llm"
	"runlog/engine/secret"
	"runlog/testbed/bubble"
	"runlog/testbed/network"
)

// hunter is the key of the worker, and stepKey that of a step.
const (
	hunter  = "hunter2-correct-horse"
	stepKey = "battery-staple-4711"
)

func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// serveOn serves on a network in fake time.
func serveOn(t *testing.T, n *network.Network, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	_ = s.Listener.Close() // the server listens on n
	var err error
	if s.Listener, err = n.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}

// saying serves a completion with a text.
func saying(t *testing.T, text string) string {
	return serve(t, func(w http.ResponseWriter, _ *http.Request) {
		json.NewEncoder(w).Encode(map[string]any{
			"id": "x", "model": "small-1", "usage": map[string]int{"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
			"choices": []any{map[string]any{"index": 0, "finish_reason": "stop", "message": map[string]any{"role": "assistant", "content": text}}},
		})
	})
}

func hello() map[string]any {
	return map[string]any{"model": "small", "messages": []any{map[string]string{"role": "user", "content": "hello"}}}
}

func run(t *testing.T, url string, inputs map[string]any, change func(*llm.Options, *executor.Task)) (executor.Result, *executor.Error) {
	t.Helper()
	client := httpcall.NewClient(httpcall.ClientOptions{MaxResponse: 100_000})
	t.Cleanup(client.Close)
	secrets, err := secret.NewSet(map[string]string{"env:STEP": stepKey, "env:KEY": "of the plan", "env:BAD": "key\nwith a line"})
	if err != nil {
		t.Fatal(err)
	}
	worker := secret.OwnEnv(func(name string) (string, bool) { return hunter, name == "KEY" })
	text, err := json.Marshal(inputs)
	if err != nil {
		t.Fatal(err)
	}
	o := llm.Options{Client: client, BaseURL: url + "/v1/", APIKey: "env:KEY", KeyProvider: worker}
	task := executor.Task{RunID: "run", StepID: "step", LogicalAttempt: 1, Executor: "llm", Inputs: text, Secrets: secrets}
	if change != nil {
		change(&o, &task)
	}
	e, err := llm.New(o)
	if err != nil {
		t.Fatal(err)
	}
	r, err := executor.NewRegistry(executor.Options{}, map[string]executor.Executor{"llm": e})
	if err != nil {
		t.Fatal(err)
	}
	result, err := r.Execute(t.Context(), task)
	fault, _ := errors.AsType[*executor.Error](err)
	if fault != nil && (result.Output != nil || strings.Contains(fault.Error(), hunter)) {
		t.Errorf("the failure has an output or the key: %s, %v", result.Output, fault)
	}
	return result, fault
}

func wantFault(t *testing.T, fault *executor.Error, kind executor.Kind, code, text string) {
	t.Helper()
	if fault == nil || fault.Kind != kind || fault.Code != code || !strings.Contains(fault.Message, text) {
		t.Errorf("want %v %s with %q, got %+v", kind, code, text, fault)
	}
}

// TestCompletionENG3 sends the inputs with the key, and returns text, model and usage.
func TestCompletionENG3(t *testing.T) {
	t.Parallel()
	var body string
	answer := saying(t, "The key is "+hunter+".")
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		body = string(text)
		if r.Method != http.MethodPost || r.URL.Path != "/v1/chat/completions" || r.Header.Get("Authorization") != "Bearer "+hunter || len(r.Header.Get("Idempotency-Key")) != 32 {
			t.Errorf("got %s %s %v", r.Method, r.URL, r.Header)
		}
		again, err := http.Get(answer)
		if err != nil {
			t.Error(err)
			return
		}
		defer again.Body.Close()
		io.Copy(w, again.Body)
	})
	inputs := hello()
	inputs["temperature"], inputs["maxTokens"] = 0.0, 50
	result, fault := run(t, url, inputs, nil)
	want := `{"text":"The key is [secret].","model":"small-1","finishReason":"stop","usage":{"promptTokens":7,"completionTokens":3,"totalTokens":10}}`
	if fault != nil || string(result.Output) != want {
		t.Errorf("want %s, got %s, %v", want, result.Output, fault)
	}
	if want := `{"model":"small","messages":[{"role":"user","content":"hello"}],"temperature":0,"max_tokens":50,"stream":false}`; body != want {
		t.Errorf("want %s, got %s", want, body)
	}
	delete(inputs, "temperature")
	delete(inputs, "maxTokens")
	delete(inputs, "model")
	if _, fault := run(t, url, inputs, func(o *llm.Options, _ *executor.Task) { o.Model = "default" }); fault != nil || !strings.HasPrefix(body, `{"model":"default"`) || strings.Contains(body, "temp") {
		t.Errorf("got %s, %v", body, fault)
	}
	if _, fault := run(t, saying(t, "x"), hello(), func(o *llm.Options, _ *executor.Task) { o.APIKey = "" }); fault != nil {
		t.Error(fault)
	}
}

// TestInputsENG3: malformed inputs are permanent errors, and no server is called.
func TestInputsENG3(t *testing.T) {
	t.Parallel()
	url := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("it was called") })
	for text, change := range map[string]func(map[string]any){
		"model is empty":            func(in map[string]any) { delete(in, "model") },
		"messages is empty":         func(in map[string]any) { in["messages"] = []any{} },
		"no role":                   func(in map[string]any) { in["messages"] = []any{map[string]string{"content": "x"}} },
		"temperature":               func(in map[string]any) { in["temperature"] = 3 },
		"maxTokens":                 func(in map[string]any) { in["maxTokens"] = 0 },
		"unknown field":             func(in map[string]any) { in["base_url"] = "https://thief.example" },
		"characters that no":        func(in map[string]any) { in["apiKey"] = "env:BAD" },
		"expression 1 is malformed": func(in map[string]any) { in["policy"] = map[string]any{"forbidden": []string{"("}} },
	} {
		inputs := hello()
		change(inputs)
		_, fault := run(t, url, inputs, nil)
		wantFault(t, fault, executor.Permanent, executor.CodeInputsInvalid, text)
	}
	inputs := hello()
	inputs["apiKey"] = "env:NONE"
	_, fault := run(t, url, inputs, nil)
	wantFault(t, fault, executor.Permanent, executor.CodeSecretMissing, "env:NONE")
	for _, o := range []llm.Options{{}, {BaseURL: "https://x"}, {Client: httpcall.NewClient(httpcall.ClientOptions{})}} {
		if _, err := llm.New(o); err == nil {
			t.Errorf("%v is enough", o)
		}
	}
}

// TestPolicyENG3: an answer that breaks a rule is a permanent error, and nothing of it is left.
func TestPolicyENG3(t *testing.T) {
	t.Parallel()
	schema := `{"type":"object","properties":{"n":{"type":"integer","maximum":9}},"required":["n"],"additionalProperties":false}`
	token := "gh" + "p_" + "aB3dE5gH7jK9mN1pQ2sT4vW6yZ8bC0eF2hJ4"
	for _, tt := range []struct {
		text, rules, want string
	}{
		{"FORBIDDEN", `{"maxChars":8}`, "the rule maxChars: it has 9 characters, at most 8"},
		{"üüüüü", `{"maxChars":5}`, ""},
		{"it is forBidden", `{"forbidden":["x{3}","(?i)FORBIDDEN"]}`, "the rule forbidden: it matches expression 2"},
		{"it is fine", `{"forbidden":["x{3}","(?i)FORBIDDEN"]}`, ""},
		{"take " + token, `{"secrets":true}`, "the rule secrets: it has what looks like a secret (github-token) at byte 5"},
		{`"\u0067` + token[1:] + `"`, `{"secrets":true}`, "the rule secrets"},
		{"take " + token, `{}`, ""},
		{`{"n":5}`, `{"jsonSchema":` + schema + `}`, ""},
		{`{"n":"FORBIDDEN"}`, `{"jsonSchema":` + schema + `}`, "the rule jsonSchema: it fails at #/properties/n/type"},
		{`{"n":12345}`, `{"jsonSchema":` + schema + `}`, "the rule jsonSchema: it fails at #/properties/n/maximum"},
		{`{"n":1,"FORBIDDEN":2}`, `{"jsonSchema":` + schema + `}`, "the rule jsonSchema: it fails at #/additionalProperties"},
		{`FORBIDDEN`, `{"jsonSchema":` + schema + `}`, "the rule jsonSchema: it is no JSON"},
		{`{"n":5} FORBIDDEN`, `{"jsonSchema":` + schema + `}`, "the rule jsonSchema: it is no JSON"},
		{strings.Repeat("[", 40_000), `{"jsonSchema":{"items":{"$ref":"#"}}}`, "the rule jsonSchema: it is no JSON"},
	} {
		var rules llm.RulesOptions
		if err := json.Unmarshal([]byte(tt.rules), &rules); err != nil {
			t.Fatal(err)
		}
		ofWorker, err := llm.NewRules(rules)
		if err != nil {
			t.Fatal(err)
		}
		inputs := hello()
		inputs["policy"] = json.RawMessage(tt.rules)
		url := saying(t, tt.text)
		for name, run := range map[string]func() (executor.Result, *executor.Error){
			"of the step": func() (executor.Result, *executor.Error) { return run(t, url, inputs, nil) },
			"of the worker": func() (executor.Result, *executor.Error) {
				return run(t, url, hello(), func(o *llm.Options, _ *executor.Task) { o.Policy = ofWorker })
			},
		} {
			result, fault := run()
			if tt.want == "" {
				if fault != nil || len(result.Output) == 0 {
					t.Errorf("%s, %.50s: %v", name, tt.text, fault)
				}
				continue
			}
			wantFault(t, fault, executor.Permanent, llm.CodeViolation, tt.want)
			said := fmt.Sprintf("%+v %s %s", fault, result.Output, result.Logs)
			if strings.Contains(said, "FORBIDDEN") || strings.Contains(said, "forBidden") || strings.Contains(said, "12345") || strings.Contains(said, token) {
				t.Errorf("%s, %.50s: something is left: %s", name, tt.text, said)
			}
		}
	}
}

// TestRulesRefuseENG3 reports every fault of rules, and loads no schema from elsewhere.
func TestRulesRefuseENG3(t *testing.T) {
	t.Parallel()
	_, err := llm.NewRules(llm.RulesOptions{MaxChars: -1, Forbidden: []string{"(", strings.Repeat("x", 1001)}, JSONSchema: json.RawMessage(`{"type":7}`)})
	for _, want := range []string{"maxChars", "expression 1", "expression 2", "jsonSchema"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %s, got %v", want, err)
		}
	}
	url := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("it was called") })
	for _, schema := range []string{`{`, `{"$ref":"` + url + `/x"}`, `{"$ref":"file:///etc/passwd"}`, `"` + strings.Repeat("x", 70_000) + `"`} {
		if _, err := llm.NewRules(llm.RulesOptions{JSONSchema: json.RawMessage(schema)}); err == nil {
			t.Errorf("%.50s is a schema", schema)
		}
	}
	if _, err := llm.NewRules(llm.RulesOptions{Forbidden: make([]string, 101)}); err == nil {
		t.Error("101 expressions are taken")
	}
	// A schema that refers to itself in a circle ends.
	circle, err := llm.NewRules(llm.RulesOptions{JSONSchema: json.RawMessage(`{"$ref":"#"}`)})
	if err == nil {
		err = circle.Check(t.Context(), `{}`)
	}
	t.Log(err)
}

type brokenPolicy struct{}

func (brokenPolicy) Check(context.Context, string) error { return errors.New("the judge is away") }

// TestPolicyFailsENG3: a policy that cannot decide lets nothing pass.
func TestPolicyFailsENG3(t *testing.T) {
	t.Parallel()
	_, fault := run(t, saying(t, "x"), hello(), func(o *llm.Options, _ *executor.Task) { o.Policy = brokenPolicy{} })
	wantFault(t, fault, executor.Retryable, llm.CodePolicy, "the judge is away")
}

// TestHostileENG3: no server fills memory, holds up the worker, or has its answer in an error.
func TestHostileENG3(t *testing.T) {
	t.Parallel()
	text := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) }
	}
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		kind   executor.Kind
		code   string
	}{
		"no JSON":         {text("FORBIDDEN"), executor.Retryable, llm.CodeResponse},
		"other JSON":      {text(`{"FORBIDDEN":1}`), executor.Retryable, llm.CodeResponse},
		"no choice":       {text(`{"choices":[]}`), executor.Retryable, llm.CodeResponse},
		"no text":         {text(`{"choices":[{"message":{"content":null}}]}`), executor.Retryable, llm.CodeResponse},
		"text of another": {text(`{"choices":[{"message":{"content":["FORBIDDEN"]}}]}`), executor.Retryable, llm.CodeResponse},
		"deep":            {text(strings.Repeat(`{"choices":`, 9000)), executor.Retryable, llm.CodeResponse},
		"huge":            {text(`{"choices":[{"message":{"content":"` + strings.Repeat("FORBIDDEN", 20_000)), executor.Permanent, httpcall.CodeTooLarge},
		"stream that ends": {text("data: {\"choices\":[{\"delta\":{\"content\":\"FORBIDDEN\"}}]}\n\ndata: [DONE]\n\n"),
			executor.Retryable, llm.CodeResponse},
		"stream without an end": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for r.Context().Err() == nil {
				io.WriteString(w, "data: {}\n\n")
				w.(http.Flusher).Flush()
				time.Sleep(5 * time.Millisecond)
			}
		}, executor.Retryable, executor.CodeTimeout},
		"silent": {func(_ http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}, executor.Retryable, executor.CodeTimeout},
		"busy": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429) }, executor.Retryable, "HTTP_429"},
		"denied": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(401)
			io.WriteString(w, "bad key "+r.Header.Get("Authorization"))
		}, executor.Permanent, "HTTP_401"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check := func(t *testing.T, fault *executor.Error) {
				wantFault(t, fault, tt.kind, tt.code, "")
				if fault != nil && strings.Contains(fault.Message, "FORBIDDEN") {
					t.Errorf("the error has the answer: %v", fault)
				}
			}
			if tt.code != executor.CodeTimeout {
				_, fault := run(t, serve(t, tt.answer), hello(), nil)
				check(t, fault)
				return
			}
			bubble.Test(t, func(t *testing.T) {
				n := network.New(1)
				dial := n.Dialer("worker")
				client := httpcall.NewClient(httpcall.ClientOptions{MaxResponse: 100_000,
					Dial: func(ctx context.Context, _, at string) (net.Conn, error) { return dial(ctx, at) }})
				t.Cleanup(client.Close)
				_, fault := run(t, serveOn(t, n, tt.answer), hello(), func(o *llm.Options, task *executor.Task) {
					o.Client, task.Timeout = client, 100*time.Millisecond
				})
				check(t, fault)
			})
		})
	}
}

// TestKeysENG7: the server gets the key of the worker, or that which the step names among its own
// secrets. A model that repeats one, or a secret of the plan with the same reference, has it
// replaced. Without its key the worker asks nothing.
func TestKeysENG7(t *testing.T) {
	t.Parallel()
	var got []string
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("Authorization"))
		json.NewEncoder(w).Encode(map[string]any{"choices": []any{map[string]any{"message": map[string]any{"content": hunter + " " + stepKey + " of the plan"}}}})
	})
	for _, ref := range []string{"", "env:STEP"} {
		inputs := hello()
		inputs["apiKey"] = ref
		result, fault := run(t, url, inputs, nil)
		if fault != nil || !strings.Contains(string(result.Output), `"[secret] [secret] [secret]"`) {
			t.Errorf("%q: %s, %v", ref, result.Output, fault)
		}
	}
	if want := []string{"Bearer " + hunter, "Bearer " + stepKey}; !slices.Equal(got, want) {
		t.Errorf("the server got %q, want %q", got, want)
	}
	for kind, lookup := range map[executor.Kind]secret.Provider{executor.Permanent: secret.OwnEnv(nil), executor.Retryable: secret.File{Dir: t.TempDir() + "/none", Own: true}} {
		ref := map[executor.Kind]string{executor.Permanent: "env:RUNLOG_TEST_NO_SUCH_KEY", executor.Retryable: "file:key"}[kind]
		_, fault := run(t, url, hello(), func(o *llm.Options, _ *executor.Task) { o.APIKey, o.KeyProvider = ref, lookup })
		wantFault(t, fault, kind, executor.CodeSecretMissing, "secret ")
	}
	if len(got) != 2 {
		t.Errorf("the server was asked without a key: %q", got)
	}
	client := httpcall.NewClient(httpcall.ClientOptions{})
	defer client.Close()
	if _, err := llm.New(llm.Options{Client: client, BaseURL: url, APIKey: "env:KEY"}); err == nil {
		t.Error("a key without a provider is taken")
	}
}

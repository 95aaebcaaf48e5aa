package workerflags_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"runlog/engine/executor"
	"runlog/engine/executor/httpcall"
	"runlog/engine/secret"
	"runlog/engine/workerflags"
)

// rivals is what no step of another tenant may have.
const rivals = "rival-battery-staple"

// TestHostileStepsENG7: each step by which a tenant tries to get the secrets of another one, a
// program, a file or a private address is refused with a code. Nothing leaves, and texts that look
// like templates stay as they are.
func TestHostileStepsENG7(t *testing.T) {
	var mu sync.Mutex
	var got []string
	sink := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, fmt.Sprint(r.URL.Path, r.Header["X-Text"]))
		_, _ = w.Write([]byte("{}"))
	}))
	defer sink.Close()
	port := sink.URL[strings.LastIndex(sink.URL, ":"):]
	for name, value := range map[string]string{"SECRET_RIVAL_DB": rivals, "AWS_SECRET_ACCESS_KEY": rivals, "SECRET_ACME_OWN": "of acme alone"} {
		t.Setenv(name, value)
	}
	o := workerflags.Options{Environment: "prod", Getenv: func(name string) string {
		if strings.HasPrefix(name, "VAULT_") {
			return ""
		}
		return os.Getenv(name)
	}}
	tenants := []string{"--secret-env", "acme=SECRET_ACME_,rival=SECRET_RIVAL_"}
	none, some := tenants, slices.Concat(tenants, []string{"--executors", "command,http"})
	open := slices.Concat(tenants, []string{"--executors", "http", "--http-networks", "127.0.0.0/8"})
	type refs = []string
	for _, tt := range []struct {
		name  string
		flags []string
		of    string // the executor
		refs  []string
		in    string
		want  string // a code, or the output
	}{
		{"a program", none, "command", nil, `{"argv":["env"]}`, executor.CodeUnknownExecutor},
		{"a request", none, "http", nil, `{"url":"` + sink.URL + `"}`, executor.CodeUnknownExecutor},
		{"another tenant's variable", some, "command", refs{"env:RIVAL_DB"}, `{"argv":["env"]}`, executor.CodeSecretMissing},
		{"its whole name", some, "command", refs{"env:SECRET_RIVAL_DB"}, `{"argv":["env"]}`, executor.CodeSecretMissing},
		{"the worker's variable", some, "command", refs{"env:AWS_SECRET_ACCESS_KEY"}, `{"argv":["env"]}`, executor.CodeSecretMissing},
		{"a variable as a path", some, "command", refs{"env:../RIVAL_DB"}, `{"argv":["env"]}`, executor.CodeSecretMissing},
		{"a scheme that is off", some, "command", refs{"file:/etc/passwd"}, `{"argv":["env"]}`, executor.CodeSecretMissing},
		{"a secret that is not listed", some, "command", refs{"env:OWN"}, `{"argv":["env"],"secretEnv":{"A":"env:RIVAL_DB"}}`, executor.CodeSecretMissing},
		{"a secret file that is not listed", some, "command", nil, `{"argv":["env"],"secretFiles":{"A":"env:OWN"}}`, executor.CodeSecretMissing},
		{"a header that is not listed", open, "http", nil, `{"url":"` + sink.URL + `","secretHeaders":{"X-Text":{"ref":"env:OWN"}}}`, executor.CodeSecretMissing},
		{"the environment of the worker", some, "command", nil, `{"argv":["sh","-c","echo $SECRET_RIVAL_DB$AWS_SECRET_ACCESS_KEY; cat /proc/$PPID/environ 2>/dev/null; true"]}`, `"text":"\n"`},
		{"a variable without a shell", some, "command", nil, `{"argv":["echo","$SECRET_RIVAL_DB","${SECRET_RIVAL_DB}","{{env:RIVAL_DB}}"]}`, `$SECRET_RIVAL_DB ${SECRET_RIVAL_DB} {{env:RIVAL_DB}}`},
		{"a folder elsewhere", some, "command", nil, `{"argv":["ls"],"dir":"../../etc"}`, executor.CodeInputsInvalid},
		{"a member that is none", some, "command", nil, `{"argv":["ls"],"stdin":"/etc/passwd"}`, executor.CodeInputsInvalid},
		{"loopback", some, "http", nil, `{"url":"` + sink.URL + `"}`, httpcall.CodeAddress},
		{"a name of loopback", some, "http", nil, `{"url":"http://localhost` + port + `"}`, httpcall.CodeAddress},
		{"loopback in IPv6", some, "http", nil, `{"url":"http://[::ffff:127.0.0.1]` + port + `"}`, httpcall.CodeAddress},
		{"a metadata service", some, "http", nil, `{"url":"http://169.254.169.254/latest/meta-data"}`, httpcall.CodeAddress},
		{"a private address", some, "http", nil, `{"url":"http://10.0.0.1/"}`, httpcall.CodeAddress},
		{"a file", open, "http", nil, `{"url":"file:///etc/passwd"}`, executor.CodeInputsInvalid},
		{"a user in a URL", open, "http", nil, `{"url":"http://a:b@127.0.0.1` + port + `"}`, executor.CodeInputsInvalid},
		{"a header for proxies", open, "http", nil, `{"url":"` + sink.URL + `","headers":{"Host":"rival"}}`, executor.CodeInputsInvalid},
		{"a header with a line", open, "http", nil, `{"url":"` + sink.URL + `","headers":{"X-Text":"a\nHost: b"}}`, executor.CodeInputsInvalid},
		{"a template", open, "http", nil, `{"url":"` + sink.URL + `/{{env:RIVAL_DB}}","headers":{"X-Text":"${SECRET_RIVAL_DB} {{ .Secrets }}"}}`, `"status":200`},
	} {
		w, err := build(t, o, tt.flags...)
		if err != nil {
			t.Fatal(tt.name, err)
		}
		task := executor.Task{RunID: "r", StepID: "s", LogicalAttempt: 1, EngineAttempt: 1, Executor: tt.of, Inputs: json.RawMessage(tt.in)}
		var result executor.Result
		var fault *executor.Error
		if task.Secrets, fault = executor.Resolve(t.Context(), w.Secrets, tt.refs, secret.Scope{TenantID: "acme", EnvironmentID: "prod"}); fault == nil {
			result, err = w.Executors.Execute(t.Context(), task)
			fault, _ = errors.AsType[*executor.Error](err)
		}
		said := fmt.Sprintf("%s %s %v", result.Output, result.Logs, fault)
		if isCode := fault != nil && fault.Code == tt.want && fault.Kind == executor.Permanent; !isCode && !strings.Contains(string(result.Output), tt.want) {
			t.Errorf("%s: want %s, got %s", tt.name, tt.want, said)
		}
		if strings.Contains(said, rivals) {
			t.Errorf("%s: %s has the secret of another tenant", tt.name, said)
		}
	}
	if want := "/{{env:RIVAL_DB}}[${SECRET_RIVAL_DB} {{ .Secrets }}]"; len(got) != 1 || got[0] != want {
		t.Errorf("the server got %q, want %q alone", got, want)
	}
}

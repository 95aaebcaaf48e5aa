package runner_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"

	"runlog/client"
	"runlog/engine/blob"
	"runlog/engine/executor"
	"runlog/engine/plan"
	"runlog/engine/replay"
	"runlog/engine/runner"
	runlogv1 "runlog/proto/runlog/v1"
)

// memory keeps blobs.
type memory struct {
	mu    sync.Mutex
	blobs map[string][]byte
}

func (m *memory) Put(_ context.Context, uri string, r io.Reader, _ int64) error {
	body, err := io.ReadAll(r)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.blobs[uri] = body
	return err
}

func (*memory) List(context.Context, string) iter.Seq2[blob.Entry, error] {
	return func(func(blob.Entry, error) bool) {}
}

func (m *memory) Open(_ context.Context, uri string) (io.ReadCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	body, ok := m.blobs[uri]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return io.NopCloser(bytes.NewReader(body)), nil
}

// FuzzManifestATT1: a manifest of any text is refused with its faults, or is stored with a plan
// that can be executed, and is the same manifest when it is read and stored again.
func FuzzManifestATT1(f *testing.F) {
	c, err := client.Dial("127.0.0.1:1", client.Options{DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(
		func(_ context.Context, name string, _, reply any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, _ ...grpc.CallOption) error {
			me, ok := reply.(*runlogv1.WhoAmIResponse)
			if !ok {
				return fmt.Errorf("a call of %s", name)
			}
			me.Tenants, me.Roles = []string{"acme"}, []runlogv1.Role_Value{runlogv1.Role_PRODUCER}
			return nil
		},
	)}})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = c.Close() })
	registry, err := executor.NewRegistry(executor.Options{}, map[string]executor.Executor{"noop": executor.Noop{}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		blobs := &memory{blobs: map[string][]byte{}}
		r, err := runner.New(runner.Options{
			Client: c, Worker: "test", Tenant: "acme", Project: "shop", Environment: "prod", Blobs: blobs, Base: "mem://b", Executors: registry,
		})
		if err != nil {
			t.Fatal(err)
		}
		call := func(method, path string, body []byte) (int, map[string]any) {
			w := httptest.NewRecorder()
			req := httptest.NewRequestWithContext(t.Context(), method, "http://localhost"+path, bytes.NewReader(body))
			req.Header.Set("Content-Type", "application/json")
			r.Handler().ServeHTTP(w, req)
			var answer map[string]any
			d := json.NewDecoder(w.Body)
			d.UseNumber() // An input may have a number of any size.
			if err := d.Decode(&answer); err != nil {
				t.Fatal(err)
			}
			return w.Code, answer
		}
		status, answer := call("POST", "/api/manifests", body)
		if status != http.StatusCreated {
			faults, _ := answer["faults"].([]any)
			if status != http.StatusUnprocessableEntity || len(faults) == 0 || len(blobs.blobs) != 0 {
				t.Fatalf("%d %v, and %d blobs", status, answer, len(blobs.blobs))
			}
			return
		}
		id, _ := answer["id"].(string)
		for uri, blob := range blobs.blobs {
			if strings.Contains(uri, "/plans/") {
				p, _, err := plan.Parse(blob, plan.Options{})
				if err != nil || p.PlanID != id {
					t.Fatalf("the plan of manifest %s: %v", id, err)
				}
			}
		}
		status, stored := call("GET", "/api/manifests/"+id, nil)
		if status != http.StatusOK || stored["id"] != id {
			t.Fatalf("%d %v", status, stored)
		}
		var sent struct{ Steps []map[string]json.RawMessage }
		if err := json.Unmarshal(body, &sent); err != nil {
			t.Fatal(err)
		}
		steps, _ := stored["steps"].([]any)
		if len(steps) != len(sent.Steps) {
			t.Fatalf("%d of %d steps are stored", len(steps), len(sent.Steps))
		}
		var again []byte
		for uri, blob := range blobs.blobs {
			if strings.HasSuffix(uri, "/"+id+".json") {
				again = blob
			}
		}
		held := len(blobs.blobs)
		if status, answer := call("POST", "/api/manifests", again); status != http.StatusCreated || answer["id"] != id || len(blobs.blobs) != held {
			t.Fatalf("stored again: %d %v, and %d blobs", status, answer, len(blobs.blobs))
		}
	})
}

// FuzzAttestationATT4: an attestation of any text is refused with 422, or the call to the log says
// what it says.
func FuzzAttestationATT4(f *testing.F) {
	f.Fuzz(func(t *testing.T, body []byte) {
		req, status := runner.Attestation(body, "r", &replay.Step{ID: "B", Attempt: 3})
		if status != 0 {
			if status != http.StatusUnprocessableEntity {
				t.Fatalf("status %d", status)
			}
			return
		}
		type artifact struct{ Name, URI string }
		var in struct {
			Outcome    string
			AttestedBy string `json:"attested_by"`
			Artifacts  []artifact
		}
		if err := json.Unmarshal(body, &in); err != nil {
			t.Fatal(err)
		}
		var artifacts []artifact
		for _, x := range req.Artifacts {
			artifacts = append(artifacts, artifact{x.Name, x.Uri})
		}
		if req.RunId != "r" || req.StepId != "B" || req.GetLogicalAttemptId() != 3 || req.Outcome.String() != in.Outcome ||
			req.AttestedBy != in.AttestedBy || !slices.Equal(artifacts, in.Artifacts) {
			t.Fatalf("%s is sent as %v", body, req)
		}
	})
}

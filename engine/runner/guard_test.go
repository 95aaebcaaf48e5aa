package runner_test

import (
	"net/http"
	"strings"
	"testing"

	"runlog/testbed/bubble"
)

// TestForeignPagesATT1: a web page that a browser on this machine shows cannot have the runner
// execute anything. It can neither send a body that the runner takes without a question of the
// browser, nor be the runner's own site by a name that means 127.0.0.1 now.
func TestForeignPagesATT1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testForeignPagesATT1)
}

func testForeignPagesATT1(t *testing.T) {
	p := newBed(t).start(t)
	const body = `{"name":"m","steps":[{"step_key":"A"}]}`
	for _, tt := range []struct {
		method, host, kind, authorization string
		status                            int
	}{
		{"POST", "", "application/json", "", 201},
		{"POST", "localhost:7430", "application/json; charset=UTF-8", "", 201},
		{"POST", "runner.localhost", "application/json", "", 201},
		{"POST", "[::1]:7430", "application/json", "", 201},
		{"POST", "runner.example", "application/json", "Bearer x", 201}, // a proxy
		{"POST", "", "text/plain", "", 415},
		{"POST", "", "text/plain;application/json", "", 415},
		{"POST", "", "application/x-www-form-urlencoded", "", 415},
		{"POST", "", "application/json; charset=latin1", "", 415},
		{"POST", "", "", "", 415},
		{"POST", "evil.example", "application/json", "", 403},
		{"POST", "127.0.0.1.evil.example:7430", "application/json", "", 403},
		{"GET", "evil.example", "", "", 403},
		{"OPTIONS", "", "", "", 405},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tt.method, p.api.URL+"/api/manifests", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = tt.host
		if tt.kind != "" {
			req.Header.Set("Content-Type", tt.kind)
		}
		if tt.authorization != "" {
			req.Header.Set("Authorization", tt.authorization)
		}
		req.Header.Set("Origin", "http://evil.example")
		resp, err := p.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != tt.status || resp.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%+v: %d %v", tt, resp.StatusCode, resp.Header)
		}
	}
}

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestWhoAttestedATT6: with access control, an attestation is in the name of its caller, an
// attester that has not requested the run. An audit window and a verified proof show it, with the
// identity that the log has authenticated (SEC-8).
func TestWhoAttestedATT6(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	admin := filepath.Join(dir, "admin.token")
	node := startNode(t, filepath.Join(dir, "data"), "RUNLOG_ADMIN_TOKEN_FILE="+admin)
	p := programs{t: t, server: node.GRPC}
	do := func(args ...string) string {
		t.Helper()
		code, out, errs := p.runlog(append(args, "--token-file", admin)...)
		if code != 0 {
			t.Errorf("%v: exit %d, %s", args, code, errs)
		}
		return out
	}
	tokens, ids := map[string]string{}, map[string]string{}
	for name, roles := range map[string]string{"jed": "reader,attester", "ann": "producer,reader,operator,attester", "bob": "producer,reader,operator"} {
		var made struct{ Token, TokenID string }
		if err := json.Unmarshal([]byte(do("token", "create", name, "--tenant", "acme", "--role", roles, "-o", "json")), &made); err != nil {
			t.Fatal(err)
		}
		tokens[name], ids[name] = made.Token, made.TokenID
	}
	by := `"appendedBy":"token:jed","appendedByTokenId":"` + ids["jed"] + `"`
	at := spawnRunner(t, node.GRPC, []string{"RUNLOG_TOKEN_FILE=" + admin}, "--store", filepath.Join(dir, "store"))
	call := func(who, method, path, body string) (status int, answer map[string]any) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, at.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+tokens[who])
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err == nil {
			err = json.Unmarshal(text, &answer)
		}
		if err != nil {
			t.Fatal(err, string(text))
		}
		return resp.StatusCode, answer
	}
	_, manifest := call("ann", "POST", "/api/manifests", `{"name":"m","steps":[{"step_key":"B","step_type":"compute",
		"compute_contract":{"executor":"x","inputs":[],"outputs":["y"],"verification":"operator_attest"}}]}`)
	_, made := call("ann", "POST", "/api/runs", `{"manifest_id":"`+manifest["id"].(string)+`","initiated_by":"jed"}`)
	id := made["id"].(string)
	_, state := call("ann", "GET", "/api/runs/"+id+"?wait=1h", "")
	attest := "/api/runs/" + id + "/steps/" + state["steps"].([]any)[0].(map[string]any)["step_run_id"].(string) + "/attest"
	for _, tt := range []struct {
		who, attestedBy string
		want            int
	}{
		{"ann", "token:jed", 403}, {"ann", "jed", 403}, {"jed", "jed", 403},
		{"ann", "token:ann", 403}, // She has requested the run (SEC-10).
		{"bob", "token:bob", 403}, // He is no attester.
		{"jed", "token:jed", 200}, {"jed", "token:jed", 409},
	} {
		if status, answer := call(tt.who, "POST", attest, `{"attested_by":"`+tt.attestedBy+`","outcome":"SUCCESS"}`); status != tt.want {
			t.Errorf("%s attests as %s: %d %v", tt.who, tt.attestedBy, status, answer)
		}
	}
	window := do("audit", "query", "--from", "-1h", "--run", id, "--type", "StepAttested", "-o", "json")
	if strings.Count(window, `"eventType":"StepAttested"`) != 1 || !strings.Contains(window, `"attestedBy":"token:jed"`) || !strings.Contains(window, by) {
		t.Errorf("the window has %s", window)
	}
	key, proof := filepath.Join(dir, "cluster.pub"), filepath.Join(dir, "run.proof")
	if err := os.WriteFile(key, []byte(do("audit", "keys", "-o", "json")), 0o600); err != nil {
		t.Fatal(err)
	}
	do("audit", "proof", id, "-f", proof)
	do("audit", "verify", proof, "--key", key)
	text, err := os.ReadFile(proof)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	i := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, `"eventType":"StepAttested"`) })
	if i < 0 || !strings.Contains(lines[i], by) || !strings.Contains(lines[i], `"attestedBy":"token:jed"`) {
		t.Errorf("the proof has %s", text)
	}
	forged := filepath.Join(dir, "forged.proof")
	for _, other := range []string{strings.Replace(by, "jed", "ann", 1), strings.Replace(by, ids["jed"], ids["ann"], 1)} {
		if err := os.WriteFile(forged, bytes.ReplaceAll(text, []byte(by), []byte(other)), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, out, _ := p.runlog("audit", "verify", forged, "--key", key); code == 0 {
			t.Errorf("a proof with %s is verified: %s", other, out)
		}
	}
}

package runner_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"runlog/client"
	"runlog/testbed/bubble"
)

// TestAllFaultsOfAManifestATT1: a manifest is refused with all its faults at once, each with the
// place that its author has written.
func TestAllFaultsOfAManifestATT1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testAllFaultsOfAManifestATT1)
}

func testAllFaultsOfAManifestATT1(t *testing.T) {
	b := newBed(t)
	p := b.serve(t, b.options(t, b.srv.Client(client.Options{})))
	for body, want := range map[string][]string{
		`{"name":"m","colour":1,"steps":[{"step_key":"A","executer":"noop"},{"step_key":"B","executor":"magic","depends_on":["Z"]}]}`: {
			` has the unknown member "colour": remove it`,
			`/steps/0 has the unknown member "executer": write executor`,
			`/steps/1/executor`, `/steps/1/depends_on/0`,
		},
		`{"name":"m","steps":[{"step_key":7},{"step_key":"B","step_key":"C","depends_on":"A"}]}`: {
			`/steps/0/step_key is 7: a string is expected`, `/steps/1/step_key appears twice`, `/steps/1/depends_on is "A": an array is expected`,
		},
		`{"name":"m","steps":[{"step_key":"A","input":{"x":"ghp_` + strings.Repeat("a", 36) + `"}}]}`: {`/steps/0/input`},
		`{"name":"m","steps":5,"Name":"n"}`: {`/steps is 5`, ` has the unknown member "Name": write name`},
	} {
		status, answer := p.call("POST", "/api/manifests", body)
		var got []string
		list, _ := answer["faults"].([]any)
		for _, f := range list {
			fault, _ := f.(map[string]any)
			got = append(got, fmt.Sprint(fault["path"], " ", fault["message"]))
		}
		text := strings.Join(got, "\n")
		if status != http.StatusUnprocessableEntity || len(got) != len(want) {
			t.Errorf("%s: %d, %d faults, want %d:\n%s", body, status, len(got), len(want), text)
		}
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s: no fault %s:\n%s", body, w, text)
			}
		}
	}
}

// TestFaultsOfNumbersATT4: a number that cannot be read is refused with its place, beside all other
// faults.
func TestFaultsOfNumbersATT4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testFaultsOfNumbersATT4)
}

func testFaultsOfNumbersATT4(t *testing.T) {
	b := newBed(t)
	p := b.serve(t, b.options(t, b.srv.Client(client.Options{})))
	for _, number := range []string{"1.5", "1e3", `"5"`, "9223372036854775808", "true", "[]"} {
		body := `{"attested_by":"jed","outcome":"SUCCESS","artifacts":[{"name":"y","uri":"s3://b/y"},{"name":"z","uri":"s3://b/z","bytes":` + number + `}],"note":""}`
		_, answer := p.call("POST", "/api/runs/r/steps/s/attest", body)
		text := fmt.Sprint(answer["faults"])
		if !strings.Contains(text, "path:/artifacts/1/bytes") || !strings.Contains(text, "write notes") {
			t.Errorf("%s: %s", number, text)
		}
	}
}

package server

import (
	"encoding/json"
	"net/http"
	"testing"

	"runlog/proto/contract"
	"runlog/testbed/bubble"
)

// TestSchemasServed proves ENV-5: every schema is served where violations point to, and nothing
// else is.
func TestSchemasServed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t)
		served := 0
		for _, line := range []contract.Line{contract.Line2, contract.Line11} {
			for _, name := range contract.SchemaNames(line) {
				a := n.http(http.MethodGet, "/schemas/"+line.String()+"/"+name+".json", "")
				if a.code != http.StatusOK || a.header.Get("Content-Type") != "application/schema+json" || !json.Valid(a.body) {
					t.Errorf("%s %s: %d, %d bytes", line, name, a.code, len(a.body))
				}
				served++
			}
		}
		if served < 36 {
			t.Errorf("%d schemas were served", served)
		}
		for _, path := range []string{"/schemas/", "/schemas/2.0.0/", "/schemas/2.0.0/Nothing.json", "/schemas/3/RunStarted.json",
			"/schemas/2.0.0/RunStarted", "/schemas//RunStarted.json", "/schemas/2.0.0/../1.1/RunStarted.json"} {
			if a := n.http(http.MethodGet, path, ""); a.code != http.StatusNotFound || !json.Valid(a.body) {
				t.Errorf("%s: %d %s", path, a.code, a.body)
			}
		}
	})
}

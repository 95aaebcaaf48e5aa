package server_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"runlog/proto/contract"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestSchemasServed proves ENV-5: every schema is served where violations point to, and nothing
// else is.
func TestSchemasServed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		served := 0
		for _, line := range []contract.Line{contract.Line2, contract.Line11} {
			for _, name := range contract.SchemaNames(line) {
				a := n.HTTP(http.MethodGet, "/schemas/"+line.String()+"/"+name+".json", "")
				if a.Code != http.StatusOK || a.Header.Get("Content-Type") != "application/schema+json" || !json.Valid(a.Body) {
					t.Errorf("%s %s: %d, %d bytes", line, name, a.Code, len(a.Body))
				}
				served++
			}
		}
		if served < 36 {
			t.Errorf("%d schemas were served", served)
		}
		for _, path := range []string{"/schemas/", "/schemas/2.0.0/", "/schemas/2.0.0/Nothing.json", "/schemas/3/RunStarted.json",
			"/schemas/2.0.0/RunStarted", "/schemas//RunStarted.json", "/schemas/2.0.0/../1.1/RunStarted.json"} {
			if a := n.HTTP(http.MethodGet, path, ""); a.Code != http.StatusNotFound || !json.Valid(a.Body) {
				t.Errorf("%s: %d %s", path, a.Code, a.Body)
			}
		}
	})
}

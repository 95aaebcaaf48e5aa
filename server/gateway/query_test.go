package gateway_test

import (
	"net/http"
	"testing"

	"runlog/proto/contract"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestMistypedParameters: an unknown parameter is refused. If it were ignored, a mistyped filter
// would return more than requested.
func TestMistypedParameters(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"))
		for _, target := range []string{"/v1/runs?tenant=tenant", "/v1/runs/run/events?afterseq=2", "/v1/runs/run/snapshot?minSeq=1&nope="} {
			n.HTTP(http.MethodGet, target, "").Refused(t, contract.ReasonInvalidArgumentField)
		}
		for _, target := range []string{"/v1/runs?tenantId=tenant", "/v1/runs?tenant_id=tenant&page_size=1", "/v1/runs/run/events?afterSeq=0&types=RunStarted&types=x"} {
			if a := n.HTTP(http.MethodGet, target, ""); a.Code != http.StatusOK {
				t.Errorf("%s: %d %s", target, a.Code, a.Body)
			}
		}
	})
}

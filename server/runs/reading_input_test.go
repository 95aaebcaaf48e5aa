package runs_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"runlog/proto/contract"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestBadInputOfReads: what a reader may send that is wrong, the answer, and that nothing was
// stored by it.
func TestBadInputOfReads(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		n.Append("run", servertest.NewEvent("RunStarted"))
		other := servertest.Start(t)
		other.Append("run", servertest.NewEvent("RunStarted"))
		foreign := other.Get("/v1/runs/run/events")["applied"].(map[string]any)["position"].(string)
		page := func(query string) string {
			n.Append("second", servertest.NewEvent("RunStarted"))
			token, _ := n.Get("/v1/runs?pageSize=1" + query)["nextPageToken"].(string)
			return token
		}
		const invalid = contract.ReasonInvalidArgumentField
		many := strings.Repeat("&labels=a=b", 65)
		for _, c := range []struct {
			input  string // the path and query of a GET
			reason contract.Reason
			text   string // of the message, or of the field that is named
		}{
			{"/v1/runs?status=DONE", invalid, "must be one of PENDING"},
			{"/v1/runs?status=RUNNING&status=DONE", invalid, "must be one of PENDING"},
			{"/v1/runs?status=99", invalid, "must be one of PENDING"},
			{"/v1/runs?status=VALUE_UNSPECIFIED", invalid, "is not a run status"},
			{"/v1/runs?statuses=RUNNING", invalid, "did you mean"},
			{"/v1/runs?labels=team", invalid, "not key=value"},
			{"/v1/runs?labels==x", invalid, "not key=value"},
			{"/v1/runs?x=1" + many, invalid, "is not a parameter"},
			{"/v1/runs?" + many[1:], invalid, "at most 64"},
			{"/v1/runs?planVersion=1", invalid, "without planId"},
			{"/v1/runs?orderBy=name", invalid, `"newest" and "oldest"`},
			{"/v1/runs?startedAfter=yesterday", invalid, "RFC 3339"},
			{"/v1/runs?startedBefore=1969-01-01T00:00:00Z", invalid, "between 1970"},
			{"/v1/runs?createdAfter=2300-01-01T00:00:00Z", invalid, "between 1970"},
			{"/v1/runs?count=maybe", invalid, "true or false"},
			{"/v1/runs?count=true&count=true", invalid, "appears 2 times"},
			{"/v1/runs?consistency=STALE", invalid, "must be one of LINEARIZABLE, LOCAL"},
			{"/v1/runs?pageSize=1001", invalid, "at most 1000"},
			{"/v1/runs?minPosition=5", invalid, "is not a position"},
			{"/v1/runs?pageToken=" + page(""), "", ""},
			{"/v1/runs?orderBy=oldest&pageToken=" + page(""), invalid, "another filter"},
			{"/v1/runs?labels=a=b&pageToken=" + page(""), invalid, "another filter"},
			{"/v1/runs?runIdPrefix=r&pageToken=" + page(""), invalid, "another filter"},
			{"/v1/runs/run/snapshot?consistency=nearby", invalid, "must be one of"},
			{"/v1/runs/run/snapshot?asOfSeq=1&asOfTime=2026-01-01T00:00:00Z", invalid, "together with asOfSeq"},
			{"/v1/runs/nobody/snapshot?ifNoneMatch=*", contract.ReasonRunNotFound, "does not exist"},
			{"/v1/runs/nobody:watch?mustExist=true", contract.ReasonRunNotFound, "does not exist"},
			{"/v1/runs/nobody:watch?mustExist=yes", invalid, "true or false"},
			{"/v1/runs/a%7Cb:watch", invalid, "runId"},
			{"/v1/runs/run:watch?view=ALL", invalid, "must be one of WATERMARK"},
			{"/v1/runs/run:watch?resumeToken=x", contract.ReasonResumeTokenInvalid, "does not belong"},
			{"/v1/runs:watch?view=SNAPSHOT", invalid, "is not a view of many runs"},
			{"/v1/runs:watch?view=EVENT&status=RUNNING", invalid, "selects no events"},
			{"/v1/runs:watch?view=EVENT&includeExisting=true", invalid, "is not for events"},
			{"/v1/runs:watch?types=RunStarted", invalid, "set view=EVENT"},
			{"/v1/runs:watch?afterPosition=" + foreign, invalid, "is for events"},
			{"/v1/runs:watch?view=EVENT&afterPosition=x", invalid, "is not a position"},
			{"/v1/runs:watch?view=EVENT&afterPosition=" + n.Position(1<<30), invalid, "ahead of everything"},
			{"/v1/runs:watch?view=EVENT&resumeToken=x", contract.ReasonResumeTokenInvalid, "another filter"},
			{"/v1/runs:watch?view=EVENT" + strings.Repeat("&types=T", 101), invalid, "at most 100"},
			{"/v1/runs:watch?planVersion=1", invalid, "without planId"},
		} {
			answer := n.HTTP(http.MethodGet, c.input, "")
			if c.reason == "" {
				servertest.WantEqual(t, c.input, answer.Code, http.StatusOK)
				continue
			}
			r := answer.Refused(t, c.reason)
			if !strings.Contains(r.Message+fmt.Sprint(r.Fields), c.text) {
				t.Errorf("%s: %s %v does not say %q", c.input, r.Message, r.Fields, c.text)
			}
		}
		// What no row of the table has changed: the two runs, with one event each.
		servertest.WantEqual(t, "stored", fmt.Sprint(n.Get("/v1/runs?count=true")["count"], " ", len(n.List("run")), len(n.List("second"))), "2 1 1")
		n.HTTP(http.MethodGet, "/v1/runs/nobody", "").Refused(t, contract.ReasonRunNotFound)
	})
}

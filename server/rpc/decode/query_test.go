package decode

import (
	"net/url"
	"strings"
	"testing"

	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/protobuf/reflect/protoreflect"

	runlogv1 "runlog/proto/runlog/v1"
)

var (
	listRequest = (&runlogv1.ListEventsRequest{}).ProtoReflect().Descriptor()
	runsRequest = (&runlogv1.ListRunsRequest{}).ProtoReflect().Descriptor()
)

const eventsRoute = "/v1/runs/{run_id}/events"

func TestExplainQuery(t *testing.T) {
	for _, c := range []struct {
		query   string
		md      protoreflect.MessageDescriptor
		pattern string
		want    string
	}{
		{"pageSize=many&afterSeq=-1&consistency=SOMETIMES", listRequest, eventsRoute, `
afterSeq: must be an integer from 0 to 18446744073709551615, got "-1"
consistency: must be one of LINEARIZABLE, LOCAL, got "SOMETIMES"
pageSize: must be an integer from 0 to 4294967295, got "many"`},
		{"afterseq=1&page-size=2&tenant=x&runId=y&types.x=1", listRequest, eventsRoute, `
afterseq: is not a parameter of this call; did you mean "afterSeq" (or "after_seq")?
page-size: is not a parameter of this call; did you mean "pageSize" (or "page_size")?
runId: is part of the path: remove the parameter
tenant: is not a parameter of this call; GET /openapi.json lists them
types.x: is not a parameter of this call; GET /openapi.json lists them`},
		{"pageSize=1&pageSize=2&types=a&types=b", listRequest, eventsRoute, `
pageSize: appears 2 times: keep one`},
		{"createdAfter=today&createdBefore=2026-02-11t10:30:00z&status=7&status_=", runsRequest, "/v1/runs", `
createdAfter: must be a time in RFC 3339, such as 2026-02-11T10:30:00.123Z; got "today"
createdBefore: must be a time in RFC 3339, such as 2026-02-11T10:30:00.123Z, with a capital T and Z; got "2026-02-11t10:30:00z"
status_: is not a parameter of this call; did you mean "status"?`},
		{"createdAfter=2026-02-11T10:30:00+01:00", runsRequest, "/v1/runs", `
createdAfter: must be a time in RFC 3339, such as 2026-02-11T10:30:00.123Z, with + or - before the offset; in an address, write + as %2B; got "2026-02-11T10:30:00 01:00"`},
		{"a=%zz&b;c&pageSize=%31", runsRequest, "/v1/runs", `
a=%zz: is not a well-formed parameter: URL escape "%zz"
b;c: is not a well-formed parameter: semicolon separator in query`},
		{"pageSize=5&page_size=5", runsRequest, "/v1/runs", `
pageSize: appears as "page_size" too: keep one`},
		{"", runsRequest, "/v1/runs", "\nnothing"},
		{"pageSize=5&page_token=x&status=RUNNING", runsRequest, "/v1/runs", "\nnothing"},
	} {
		e := ExplainQuery(c.query, c.md, c.pattern)
		if got := lines(e); got != strings.TrimPrefix(c.want, "\n") {
			t.Errorf("%s: got\n%s\nwant\n%s", c.query, got, c.want)
		}
	}
}

// FuzzExplainQuery: what the parser refuses is explained, and nothing is blamed that it takes.
func FuzzExplainQuery(f *testing.F) {
	for _, query := range []string{"pageSize=many&afterSeq=-1", "runId=x", "types=a&types=b", "createdAfter=2026-02-11T10:30:00Z", "%zz", "a;b", "status=7"} {
		f.Add(query, false)
		f.Add(query, true)
	}
	inPath := utilities.NewDoubleArray([][]string{{"run_id"}})
	f.Fuzz(func(t *testing.T, query string, runs bool) {
		md, pattern, path := listRequest, eventsRoute, inPath
		if runs {
			md, pattern, path = runsRequest, "/v1/runs", utilities.NewDoubleArray(nil)
		}
		values, err := url.ParseQuery(query)
		if err == nil {
			err = Query{}.Parse(newMessage(md), values, path)
		}
		e := ExplainQuery(query, md, pattern)
		if e != nil {
			checkFault(t, e)
		}
		if (err == nil) != (e == nil) {
			t.Fatalf("%q: %v, explained as\n%s", query, err, lines(e))
		}
	})
}

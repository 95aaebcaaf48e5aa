package gateway_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// posted sends one event whose envelope has a member replaced, and returns how it reads back.
func posted(n *servertest.Node, run, member, value string) (map[string]any, servertest.HTTPAnswer) {
	n.T.Helper()
	var whole []string
	for part := range strings.SplitSeq(servertest.EnvelopeJSON+`,"payload":{}`, ",") {
		if part = strings.TrimSpace(part); strings.HasPrefix(part, `"`+member+`":`) {
			part = `"` + member + `":` + value
		}
		whole = append(whole, part)
	}
	answer := n.HTTP("POST", "/v1/runs/"+run+"/events:append", `{"events":[{`+strings.Join(whole, ",")+`}]}`)
	if answer.Code != 200 {
		return nil, answer
	}
	return n.Get("/v1/runs/" + run + "/events")["events"].([]any)[0].(map[string]any), answer
}

// TestTimesENV1: emittedAt is a time of RFC 3339 that nanoseconds in 64 bits can hold.
func TestTimesENV1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		for i, c := range []struct{ text, reads string }{ // reads "": refused
			{"2026-02-11T10:30:00Z", "2026-02-11T10:30:00Z"}, {"2026-02-11T10:30:00.123456789+01:00", "2026-02-11T09:30:00.123456789Z"},
			{"2026-02-11T10:30:00-23:59", "2026-02-12T10:29:00Z"}, {"2024-02-29T00:00:00.5Z", "2024-02-29T00:00:00.500Z"},
			{"1677-09-21T00:12:44Z", "1677-09-21T00:12:44Z"}, {"2262-04-11T23:47:16.854775807Z", "2262-04-11T23:47:16.854775807Z"},
			{"1677-09-21T00:12:43Z", ""}, {"2262-04-11T23:47:16.854775808Z", ""}, {"0001-01-01T00:00:00Z", ""}, {"9999-12-31T23:59:59Z", ""},
			{"2026-02-11t10:30:00Z", ""}, {"2026-02-11T10:30:00z", ""}, {"2026-02-11 10:30:00Z", ""}, {"2016-12-31T23:59:60Z", ""},
			{"2026-02-11T10:30:00.1234567890Z", ""}, {"2026-02-30T10:30:00Z", ""}, {"2026-02-11T24:00:00Z", ""}, {"2026-02-11T10:30:00", ""},
			{"2026-02-11T10:30:00.Z", ""}, {"2026-02-11T10:30:00+2500", ""}, {"", ""}, {"now", ""}, {"1770805800", ""},
		} {
			record, answer := posted(n, fmt.Sprint("time-", i), "emittedAt", `"`+c.text+`"`)
			if c.reads == "" {
				if r := answer.Refused(t, contract.ReasonInvalidArgumentField); r.Fields["events[0].emittedAt"] == "" {
					t.Errorf("%s: %s", c.text, answer.Body)
				}
				n.HTTP("GET", fmt.Sprint("/v1/runs/time-", i), "").Refused(t, contract.ReasonRunNotFound)
				continue
			}
			servertest.WantEqual(t, c.text, record["emittedAt"], any(c.reads))
		}
		for i, c := range []struct {
			seconds int64
			nanos   int32
			taken   bool
		}{
			{0, 0, true}, {-1, 999999999, true}, {9223372036, 854775807, true}, {-9223372036, 0, true}, {9223372036, 854775808, false}, {-9223372037, 0, false},
			{0, -1, false}, {0, 1000000000, false}, {math.MaxInt64, math.MaxInt32, false}, {math.MinInt64, math.MinInt32, false},
		} {
			stamp := &timestamppb.Timestamp{Seconds: c.seconds, Nanos: c.nanos}
			run := fmt.Sprint("stamp-", i)
			_, err := n.TryAppend(run, servertest.NewEvent("Noted", func(e *runlogv1.EventWrite) { e.EmittedAt = stamp }))
			if !c.taken {
				servertest.Refused(t, err, contract.ReasonInvalidArgumentField)
				continue
			}
			servertest.WantProto(t, run, n.List(run)[0].EmittedAt, stamp)
		}
	})
}

// TestAttemptsENV1: an attempt is a whole number from 1 that 32 bits can hold.
func TestAttemptsENV1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		for i, c := range []struct{ text, reads string }{
			{"1", "1"}, {`"7"`, "7"}, {"4294967295", "4294967295"}, {"1.0", "1"}, {"1e3", "1000"}, {`"1e3"`, "1000"},
			{"0", ""}, {"-0", ""}, {"-1", ""}, {"4294967296", ""}, {"18446744073709551617", ""}, {"1.5", ""}, {"1e400", ""}, {"null", ""}, {"true", ""}, {`""`, ""}, {`" 1"`, ""},
			{`"0x1"`, ""}, {"[1]", ""}, {`{"value":1}`, ""}, {"01", "-"}, {"+1", "-"}, {"1e", "-"}, {"NaN", "-"}, {"0x1", "-"}, {"1_0", "-"},
		} {
			run := fmt.Sprint("run-", i)
			record, answer := posted(n, run, "logicalAttemptId", c.text)
			if c.reads != "" && c.reads != "-" {
				servertest.WantEqual(t, c.text, record["logicalAttemptId"].(json.Number).String(), c.reads)
				continue
			}
			field := "events[0].logicalAttemptId"
			if c.reads == "-" {
				field = "" // not even JSON
			}
			if r := answer.Refused(t, contract.ReasonInvalidArgumentField); r.Fields[field] == "" {
				t.Errorf("%s: %s", c.text, answer.Body)
			}
			n.HTTP("GET", "/v1/runs/"+run, "").Refused(t, contract.ReasonRunNotFound)
		}
		_, err := n.TryAppend("over-grpc", servertest.NewEvent("Noted", servertest.Attempt(0)))
		servertest.Refused(t, err, contract.ReasonInvalidArgumentField)
		n.Append("over-grpc", servertest.NewEvent("Noted", servertest.Attempt(math.MaxUint32)))
	})
}

// TestPayloadsAtTheGateENV7ENV8: what a payload may be, the same over gRPC and over HTTP: it is
// stored and read byte for byte, whichever way it goes.
func TestPayloadsAtTheGateENV7ENV8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		deep := func(levels int) string {
			return `{"a":` + strings.Repeat("[", levels) + strings.Repeat("]", levels) + `}`
		}
		pad := func(size int) string { return `{"a":"` + strings.Repeat("x", size-len(`{"a":""}`)) + `"}` }
		refusals := 0
		for i, c := range []struct {
			text  string
			taken bool
		}{
			{`{"a":[1,"x",null]}`, true},
			{`{"b":1.0,"a":1e2}`, true},
			{`{"n":9007199254740993}`, true},
			{`{"n":123456789012345678901234567890,"m":1.10}`, true},
			{`{"n":1e400}`, true}, {`{"n":1e-400}`, true},
			{`{"a":1,"a":2}`, true},
			{`{"s":"\ud800"}`, true}, {`{"s":"\ud83d\ude00"}`, true}, {`{"\ud800":"\/"}`, true},
			{"{ \"a\" :\t[ ] ,\r\n \"\" : { } }", true},
			{"{\"s\":\"\xff\"}", false}, {"{\"\xff\":1}", false},
			{"{\"s\":\"\x00\"}", false},
			{`{"n":NaN}`, false}, {`{"n":Infinity}`, false}, {`{"n":-Infinity}`, false}, {`{"n":1e}`, false}, {`{"n":01}`, false},
			{`[]`, false}, {`"x"`, false}, {`7`, false}, {`{`, false}, {`{} {}`, false},
			{deep(63), true}, {deep(64), false}, {deep(20_000), false},
			{pad(65536), true}, {pad(65537), false},
		} {
			reason := contract.ReasonInvalidArgumentField
			if len(c.text) == 65537 {
				reason = contract.ReasonPayloadTooLarge
			}
			run := fmt.Sprint("grpc-", i)
			_, err := n.TryAppend(run, servertest.NewEvent("Noted", servertest.Payload(c.text)))
			_, answer := posted(n, "http-"+fmt.Sprint(i), "payload", c.text)
			if !c.taken {
				refusals++
				servertest.Refused(t, err, reason)
				answer.Refused(t, reason)
				n.HTTP("GET", "/v1/runs/"+run, "").Refused(t, contract.ReasonRunNotFound)
				n.HTTP("GET", "/v1/runs/http-"+fmt.Sprint(i), "").Refused(t, contract.ReasonRunNotFound)
				continue
			}
			if err != nil || answer.Code != 200 {
				t.Errorf("%.80s: %v, %s", c.text, err, answer.Body)
				continue
			}
			for _, run := range []string{run, "http-" + fmt.Sprint(i)} {
				servertest.WantEqual(t, run+" over gRPC", string(n.List(run)[0].GetPayloadJson()), c.text)
				if body := n.HTTP("GET", "/v1/runs/"+run+"/events", "").Body; !bytes.Contains(body, []byte(`"payload":`+c.text)) {
					t.Errorf("%s over HTTP: %.200s", run, body)
				}
			}
		}
		servertest.WantEqual(t, "refusals", refusals, 16)
	})
}

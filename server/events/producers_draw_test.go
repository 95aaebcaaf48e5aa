package events_test

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
)

// scenario is the concurrent work of several producers on a few runs, in rounds.
type scenario struct {
	runs   int
	rounds []round
}

type round struct {
	producers    [][]task
	restartAfter int // so many answers into the round the node is restarted; -1: it is not
}

// task is one call: its requests go together, as the kind of call has it.
type task struct {
	kind  string // unary, batch or stream
	sends []*send
}

// send is a request that producers make once, or repeat unchanged.
type send struct {
	run     string
	events  []*runlogv1.EventWrite
	markers []int // events that no other request has
	// expect is added to what is known of the run's lastSeq, and wanted (APP-4); nil: no condition.
	expect *int64
	// invalid is the event that must be refused, and why; -1: none.
	invalid int
	reason  contract.Reason

	req *runlogv1.AppendEventsRequest // made when it is first sent
	// What became of it.
	succeeded, lost bool
}

// maxDrawnPayload keeps a payload over the limit small.
const maxDrawnPayload = 2000

// artist draws a scenario.
type artist struct {
	*rapid.T
	runs    int
	count   int     // of markers, and of ids
	earlier []*send // for retries
}

func (a *artist) oneOf(what string, values ...string) string {
	return rapid.SampledFrom(values).Draw(a.T, what)
}

func (a *artist) upTo(what string, n int) int { return rapid.IntRange(0, n).Draw(a.T, what) }

func drawScenario(t *rapid.T) scenario {
	a := &artist{T: t, runs: 1 + rapid.IntRange(0, 2).Draw(t, "runs")}
	s := scenario{runs: a.runs}
	producers := 2 + a.upTo("producers", 2)
	for range 1 + a.upTo("rounds", 2) {
		r := round{producers: make([][]task, producers), restartAfter: rapid.SampledFrom([]int{-1, 0, 1, 3, 10}).Draw(t, "restart after")}
		for p := range r.producers {
			for range 1 + a.upTo("tasks", 3) {
				r.producers[p] = append(r.producers[p], a.task())
			}
		}
		s.rounds = append(s.rounds, r)
	}
	return s
}

func (a *artist) task() task {
	c := task{kind: a.oneOf("call", "unary", "unary", "batch", "stream", "stream")}
	n := 1
	switch c.kind {
	case "batch":
		n += a.upTo("requests", 4)
	case "stream":
		n += a.upTo("in flight", 30)
	}
	for range n {
		if len(a.earlier) > 0 && a.upTo("retry", 4) == 4 {
			c.sends = append(c.sends, a.earlier[a.upTo("which", len(a.earlier)-1)])
			continue
		}
		s := a.send()
		a.earlier = append(a.earlier, s)
		c.sends = append(c.sends, s)
	}
	return c
}

func (a *artist) send() *send {
	s := &send{run: fmt.Sprint("run/", a.upTo("run", a.runs-1)), invalid: -1}
	for range rapid.SampledFrom([]int{0, 1, 1, 2, 5}).Draw(a.T, "shared events") {
		s.events = append(s.events, a.variant(sharedEvent(s.run, a.upTo("event", sharedEvents-1))))
	}
	markers := rapid.SampledFrom([]int{0, 1, 1, 2, 4}).Draw(a.T, "markers")
	// A sparse event cannot be a run's first.
	if markers == 0 && (len(s.events) == 0 || s.events[0].ContractVersion == "1.1") {
		markers = 1
	}
	for i := range markers {
		at := a.upTo("marker at", len(s.events))
		if i == markers-1 && len(s.events) > 0 && s.events[0].ContractVersion == "1.1" {
			at = 0
		}
		s.insert(at, a.marker())
	}
	for i, e := range s.events {
		if strings.HasPrefix(e.StepId, "marker ") {
			s.markers = append(s.markers, i)
		}
	}
	if a.upTo("condition", 4) == 4 {
		off := rapid.SampledFrom([]int64{0, 0, 0, 1, -1, 1 << 40}).Draw(a.T, "off by")
		s.expect = &off
	}
	if a.upTo("invalid", 7) == 7 {
		a.spoil(s)
	}
	return s
}

func (s *send) insert(at int, e *runlogv1.EventWrite) {
	s.events = append(s.events[:at:at], append([]*runlogv1.EventWrite{e}, s.events[at:]...)...)
}

func (a *artist) marker() *runlogv1.EventWrite {
	a.count++
	return servertest.NewEvent("Noted", servertest.Step(fmt.Sprint("marker ", a.count)), servertest.Payload(fmt.Sprintf(`{"marker":%d}`, a.count)))
}

// sharedEvents is how many logical events of a run all producers know.
const sharedEvents = 8

// sharedEvent is a logical event as its first producer says it: of both contract lines, with and
// without a key, an id, a payload and a plan.
func sharedEvent(run string, n int) *runlogv1.EventWrite {
	at := func(e *runlogv1.EventWrite) {
		e.EmittedAt = &timestamppb.Timestamp{Seconds: 1770805800 + int64(n), Nanos: int32(n)}
		e.EventId = fmt.Sprintf("0190f000-0000-7000-8000-%012d", n)
	}
	switch n {
	case 0:
		return servertest.NewEvent("RunStarted", servertest.Payload(`{"engineType":"mock","n":1}`))
	case 1:
		e := servertest.NewEvent("StepStarted", at, servertest.Step("Baüen 日本"), servertest.Payload("{\"n\" : 1.50,\n\t\"list\":[true,null,\"\\u00e9\"]}"))
		e.IdempotencyKey = derivedKey(&runlogv1.EventRecord{RunId: run, StepId: &e.StepId, LogicalAttemptId: 1,
			EventType: e.EventType, PlanId: e.PlanId, PlanVersion: e.PlanVersion})
		return e
	case 2:
		return servertest.NewEvent("vendor.example/thing", at, servertest.Attempt(3), func(e *runlogv1.EventWrite) {
			e.EmittedBy, e.CausedBySignalId, e.ParentEventId, e.PlanVersion = "someone", "signal", "parent", "2"
		})
	case 3:
		return servertest.NewEvent("RunPaused", at, servertest.Sparse, servertest.Key("pause-"+run), servertest.Payload(`{"draining":true}`))
	case 4:
		return servertest.NewEvent("StepCompleted", servertest.Sparse, servertest.Step("s"), func(e *runlogv1.EventWrite) { e.PlanVersion = "1" })
	case 5:
		return servertest.NewEvent("RunStarted", at, servertest.Sparse, servertest.Payload(`{"status":"RUNNING","engineType":"mock","engineRunRef":"e","startedAt":"2026-02-11T10:30:00Z",
			"context":{"tenantId":"tenant","projectId":"project","environmentId":"prod"},
			"planRef":{"uri":"u","sha256":"s","schemaVersion":"v","planId":"plan","planVersion":"other"}}`))
	case 6:
		return servertest.NewEvent("StepFailed", at, servertest.Step("s"), servertest.Attempt(2), servertest.Payload(`{"error":{"message":"`+strings.Repeat("no ", 400)+`"}}`))
	default:
		return servertest.NewEvent("SignalAccepted", servertest.Step("s"), servertest.Payload(`{}`))
	}
}

// variant is a shared event as another producer, or a retry of the platform, says it.
func (a *artist) variant(e *runlogv1.EventWrite) *runlogv1.EventWrite {
	switch a.oneOf("variant", "same", "same", "retried", "spelled", "diverged") {
	case "retried": // nothing of this is content (IDM-4, IDM-7)
		a.count++ // two events of a request have two ids (ENV-10)
		e.EventId = fmt.Sprintf("0190f000-0000-4000-9000-%012d", a.count)
		e.EngineAttemptId = 2 + uint32(a.upTo("engine attempt", 2))
		e.EmittedAt = &timestamppb.Timestamp{Seconds: 1770809999}
		e.EmittedBy = "platform"
	case "spelled":
		if text := string(e.GetPayloadJson()); text != "" {
			servertest.Payload(" " + strings.ReplaceAll(text, `":`, "\"\t: "))(e)
		}
	case "diverged":
		text := strings.TrimSuffix(string(e.GetPayloadJson()), "}")
		if text == "" || text == "{" {
			servertest.Payload(`{"diverged":true}`)(e)
		} else {
			servertest.Payload(text + `,"diverged":true}`)(e)
		}
	}
	return e
}

// spoil puts an event into the request that must fail all of it (APP-3).
func (a *artist) spoil(s *send) {
	bad := a.marker()
	switch s.reason = contract.Reason(a.oneOf("fault",
		string(contract.ReasonInvalidArgumentField), string(contract.ReasonSchemaValidationFailed),
		string(contract.ReasonKeyMismatch), string(contract.ReasonPayloadTooLarge), string(contract.ReasonRunScopeMismatch))); s.reason {
	case contract.ReasonInvalidArgumentField:
		bad.PlanId = "a|b"
	case contract.ReasonSchemaValidationFailed:
		bad.EventType = "StepAttested"
	case contract.ReasonKeyMismatch:
		bad.IdempotencyKey = "mine"
	case contract.ReasonPayloadTooLarge:
		servertest.Payload(`{"pad":"` + strings.Repeat("x", maxDrawnPayload) + `"}`)(bad)
	case contract.ReasonRunScopeMismatch:
		bad.TenantId = "stranger"
	}
	s.invalid = a.upTo("invalid at", len(s.events))
	s.insert(s.invalid, bad)
	for i := range s.markers {
		if s.markers[i] >= s.invalid {
			s.markers[i]++
		}
	}
}

// message is the request as it is sent, always the same; known is the run's lastSeq as its producer
// knows it.
func (s *send) message(known uint64) *runlogv1.AppendEventsRequest {
	if s.req == nil {
		s.req = &runlogv1.AppendEventsRequest{RunId: s.run, Events: s.events}
		if s.expect != nil {
			expected := known + uint64(*s.expect) // one less than 0 is far from every run's
			s.req.ExpectedLastSeq = &expected
		}
	}
	return s.req
}

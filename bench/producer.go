package bench

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	runlogv1 "runlog/proto/runlog/v1"
)

const (
	// A run has at least so many events and takes at least so many calls.
	minRunEvents = 50
	minRunCalls  = 5

	tenants = 8
	// textBytes of words to fill payloads from. Pieces of so much text seldom repeat within the 32 KiB that a
	// node compresses at a time, so what they compress to is what text does, and not what copies do.
	textBytes = 512 << 10

	planID      = "plan_nightly_analytics"
	planVersion = "3.4"
)

// session is what the producers of a workload share.
type session struct {
	id           string // in every run id, so that no other session has the same runs
	payloadBytes int
	text         string
}

func newSession(o *Options) *session {
	return &session{
		id:           strconv.FormatUint(rand.Uint64(), 36),
		payloadBytes: o.PayloadBytes,
		text:         fillText(textBytes + o.PayloadBytes),
	}
}

// fillText makes text such as logs have, always the same.
func fillText(size int) string {
	words := strings.Fields(`the stage table warehouse partition rows loaded from source after before retry merged skipped
		checkpoint schema column cast null constraint orders customers inventory revenue ledger snapshot refreshed index
		built in ms with warnings worker queue lease acquired released memory spilled to disk plan cost estimate actual`)
	r := rand.New(rand.NewPCG(1, 2))
	var b strings.Builder
	b.Grow(size + 16)
	for b.Len() < size {
		if r.IntN(5) == 0 {
			fmt.Fprintf(&b, "%d ", r.IntN(1_000_000))
			continue
		}
		b.WriteString(words[r.IntN(len(words))])
		b.WriteByte(' ')
	}
	return b.String()[:size]
}

// producer makes up the histories of runs, one run after the other, and cuts them into requests:
//
//	RunStarted, StepStarted, StepCompleted, StepStarted, StepCompleted, …, RunCompleted
//
// Keys are left to the server to derive; run, step and type make each of them unique.
type producer struct {
	s         *session
	number    int // of the producer in its session
	batch     int
	runEvents int
	random    *rand.Rand

	runs   int    // begun so far
	made   int    // events of the current run
	stored uint64 // of those, acknowledged
	runID  string
	engine string // engineRunRef
	tenant string
}

func newProducer(o *Options, s *session, batch, number int) *producer {
	calls := max(minRunCalls, (minRunEvents+batch-1)/batch)
	p := &producer{
		s: s, number: number, batch: batch, runEvents: calls * batch,
		random: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
		tenant: fmt.Sprintf("tenant_bench_%d", number%tenants),
	}
	p.beginRun()
	return p
}

func (p *producer) beginRun() {
	p.runs++
	p.made, p.stored = 0, 0
	p.runID = fmt.Sprintf("run_bench_%s_%d_%d", p.s.id, p.number, p.runs)
	p.engine = fmt.Sprintf("temporal://prod/interpreter/%s/%08x", p.runID, p.random.Uint32())
}

// next makes the next request; at the end of a run it goes on with another one.
func (p *producer) next() *runlogv1.AppendEventsRequest {
	if p.made == p.runEvents {
		p.beginRun()
	}
	req := &runlogv1.AppendEventsRequest{RunId: p.runID, Events: make([]*runlogv1.EventWrite, p.batch)}
	now := time.Now()
	for i := range req.Events {
		req.Events[i] = p.event(now)
		p.made++
	}
	return req
}

func (p *producer) event(now time.Time) *runlogv1.EventWrite {
	w := &runlogv1.EventWrite{
		TenantId: p.tenant, ProjectId: "proj_marketing", EnvironmentId: "prod",
		PlanId: planID, PlanVersion: planVersion,
		LogicalAttemptId: 1, EngineAttemptId: 1,
		EmittedAt: timestamppb.New(now),
		EmittedBy: "activity-worker-" + strconv.Itoa(p.number%16),
	}
	at := now.UTC()
	b := make([]byte, 0, p.s.payloadBytes+512)
	switch step := (p.made - 1) / 2; {
	case p.made == 0:
		w.EventType = "RunStarted"
		b = p.runStarted(b, at)
	case p.made == p.runEvents-1:
		w.EventType = "RunCompleted"
		b = appendTime(append(b, `{"status":"COMPLETED","completedAt":"`...), at)
		b = append(b, '"')
	case p.made%2 == 1:
		w.EventType, w.StepId = "StepStarted", stepID(step)
		b = p.stepStarted(b, at)
	default:
		w.EventType, w.StepId = "StepCompleted", stepID(step)
		b = p.stepCompleted(b, w.StepId, at)
	}
	w.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: p.fill(b)}
	return w
}

func stepID(n int) string { return "build_model_" + strconv.Itoa(n) }

func (p *producer) runStarted(b []byte, at time.Time) []byte {
	b = append(b, `{"status":"RUNNING","engineType":"temporal","engineRunRef":"`...)
	b = append(b, p.engine...)
	b = append(b, `","planRef":{"uri":"s3://acme-plans/prod/`+planID+`.json","sha256":"`...)
	b = p.appendHex(b)
	b = append(b, `","planId":"`+planID+`","planVersion":"`+planVersion+`"},"startedAt":"`...)
	return append(appendTime(b, at), '"')
}

func (p *producer) stepStarted(b []byte, at time.Time) []byte {
	b = append(b, `{"taskQueue":"tq-data-prod-`...)
	b = strconv.AppendInt(b, int64(p.random.IntN(32)), 10)
	b = append(b, `","inputDigest":"`...)
	b = p.appendHex(b)
	b = append(b, `","startedAt":"`...)
	return append(appendTime(b, at), '"')
}

func (p *producer) stepCompleted(b []byte, step string, at time.Time) []byte {
	b = append(b, `{"status":"SUCCESS","artifacts":[{"uri":"s3://acme-artifacts/prod/`...)
	b = append(b, p.runID...)
	b = append(b, '/')
	b = append(b, step...)
	b = append(b, `/manifest.json","kind":"dbt-manifest","sha256":"`...)
	b = p.appendHex(b)
	b = append(b, `","sizeBytes":`...)
	b = strconv.AppendInt(b, int64(p.random.IntN(1<<20)), 10)
	b = append(b, `}],"metrics":{"rowsWritten":`...)
	b = strconv.AppendInt(b, int64(p.random.IntN(1<<24)), 10)
	b = append(b, `},"completedAt":"`...)
	return append(appendTime(b, at), '"')
}

// fill brings an object that is still open to its size with a piece of text. Where the size has no room for
// the members so far, text is all there is.
func (p *producer) fill(b []byte) []byte {
	const open, end = `"log":"`, `"}`
	if len(b)+len(","+open+end) > p.s.payloadBytes {
		b = append(b[:0], '{')
	} else {
		b = append(b, ',')
	}
	b = append(b, open...)
	need := p.s.payloadBytes - len(b) - len(end)
	from := p.random.IntN(textBytes)
	b = append(b, p.s.text[from:from+need]...)
	return append(b, end...)
}

// appendHex appends 64 random hexadecimal digits, a SHA-256 to look at.
func (p *producer) appendHex(b []byte) []byte {
	var sum [32]byte
	for i := 0; i < len(sum); i += 8 {
		binary.NativeEndian.PutUint64(sum[i:], p.random.Uint64())
	}
	return hex.AppendEncode(b, sum[:])
}

func appendTime(b []byte, at time.Time) []byte {
	return at.AppendFormat(b, "2006-01-02T15:04:05.000Z")
}

package load

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

// Bounds of the size of a payload.
const (
	MinPayloadBytes = 16
	MaxPayloadBytes = 1 << 20
)

const (
	tenants = 8
	// textBytes is the size of the text for payloads. Pieces of so much text seldom repeat within
	// the 32 KiB that a node compresses at a time: they compress as text does, and not as copies
	// do.
	textBytes = 512 << 10

	planID      = "plan_nightly_analytics"
	planVersion = "3.4"
)

// Session is shared by the sources of a workload.
type Session struct {
	id           string // in every run id, so that no other session has the same runs
	payloadBytes int
	text         string
	Dense        bool // runSeq leaves no number out
}

// NewSession makes one whose payloads are filled with text, a result of FillText.
func NewSession(payloadBytes int, text string) *Session {
	return &Session{id: strconv.FormatUint(rand.Uint64(), 36), payloadBytes: payloadBytes, text: text, Dense: true}
}

// FillText makes text that resembles logs, always the same, for payloads of a size.
func FillText(payloadBytes int) string {
	size := textBytes + payloadBytes
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

// writer makes the events of one producer. The server derives the keys; run, step, attempt and type
// make each unique.
type writer struct {
	s       *Session
	number  int // of the producer in its session
	random  *rand.Rand
	tenant  string
	emitter string
}

func newWriter(s *Session, number int) *writer {
	return &writer{
		s: s, number: number,
		random:  rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
		tenant:  tenantOf(number),
		emitter: "activity-worker-" + strconv.Itoa(number%16),
	}
}

// tenantOf returns the tenant of a caller.
func tenantOf(number int) string { return fmt.Sprintf("tenant_bench_%d", number%tenants) }

// Tenants returns the tenants of the callers.
func Tenants() (list []string) {
	for i := range tenants {
		list = append(list, tenantOf(i))
	}
	return list
}

// RunID returns a name for a run, which no other session uses.
func (s *Session) RunID(name string) string { return "run_bench_" + s.id + "_" + name }

func (w *writer) runID(run int) string {
	return w.s.RunID(strconv.Itoa(w.number) + "_" + strconv.Itoa(run))
}

// step makes the n-th event in the history of a run with size events; a size of 0 means no end:
//
//	RunStarted, StepStarted, StepCompleted, StepStarted, StepCompleted, …, RunCompleted
func (w *writer) step(run string, n, size int, now time.Time) *runlogv1.EventWrite {
	e := w.envelope(now)
	at := now.UTC()
	b := make([]byte, 0, w.s.payloadBytes+512)
	switch number := (n - 1) / 2; {
	case n == 0:
		e.EventType = "RunStarted"
		b = w.runStarted(b, run, at)
	case n == size-1:
		e.EventType = "RunCompleted"
		b = appendTime(append(b, `{"status":"COMPLETED","completedAt":"`...), at)
		b = append(b, '"')
	case n%2 == 1:
		e.EventType, e.StepId = "StepStarted", stepID(number)
		b = w.stepStarted(b, at)
	default:
		e.EventType, e.StepId = "StepCompleted", stepID(number)
		b = w.stepCompleted(b, run, e.StepId, at)
	}
	e.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: w.fill(b)}
	return e
}

// signal makes an event that a run can have any number of: its snapshot stays small.
func (w *writer) signal(attempt uint32, now time.Time) *runlogv1.EventWrite {
	e := w.envelope(now)
	e.EventType, e.LogicalAttemptId = "SignalAccepted", attempt
	b := append(make([]byte, 0, w.s.payloadBytes+512), `{"signalType":"RETRY_STEP","decidedBy":"operator","signalId":"`...)
	b = append(w.appendHex(b), `","decidedAt":"`...)
	b = append(appendTime(b, now.UTC()), '"')
	e.PayloadForm = &runlogv1.EventWrite_PayloadJson{PayloadJson: w.fill(b)}
	return e
}

func (w *writer) envelope(now time.Time) *runlogv1.EventWrite {
	return &runlogv1.EventWrite{
		EventId:  w.eventID(now),
		TenantId: w.tenant, ProjectId: "proj_marketing", EnvironmentId: "prod",
		PlanId: planID, PlanVersion: planVersion,
		LogicalAttemptId: 1, EngineAttemptId: 1,
		EmittedAt: timestamppb.New(now),
		EmittedBy: w.emitter,
	}
}

// eventID makes a UUID of version 7 (RFC 9562, section 5.7).
func (w *writer) eventID(now time.Time) string {
	var id [16]byte
	binary.BigEndian.PutUint64(id[:8], uint64(now.UnixMilli())<<16|7<<12|uint64(w.random.Uint32()&0xfff))
	binary.BigEndian.PutUint64(id[8:], w.random.Uint64()>>2|1<<63)
	var text [36]byte
	hex.Encode(text[0:8], id[0:4])
	hex.Encode(text[9:13], id[4:6])
	hex.Encode(text[14:18], id[6:8])
	hex.Encode(text[19:23], id[8:10])
	hex.Encode(text[24:36], id[10:16])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return string(text[:])
}

func stepID(n int) string { return "build_model_" + strconv.Itoa(n) }

func (w *writer) runStarted(b []byte, run string, at time.Time) []byte {
	b = append(b, `{"status":"RUNNING","engineType":"temporal","engineRunRef":"temporal://prod/interpreter/`...)
	b = append(append(b, run...), '/')
	b = strconv.AppendUint(b, w.random.Uint64(), 16)
	b = append(b, `","planRef":{"uri":"s3://acme-plans/prod/`+planID+`.json","sha256":"`...)
	b = w.appendHex(b)
	b = append(b, `","planId":"`+planID+`","planVersion":"`+planVersion+`"},"startedAt":"`...)
	return append(appendTime(b, at), '"')
}

func (w *writer) stepStarted(b []byte, at time.Time) []byte {
	b = append(b, `{"taskQueue":"tq-data-prod-`...)
	b = strconv.AppendInt(b, int64(w.random.IntN(32)), 10)
	b = append(b, `","inputDigest":"`...)
	b = w.appendHex(b)
	b = append(b, `","startedAt":"`...)
	return append(appendTime(b, at), '"')
}

func (w *writer) stepCompleted(b []byte, run, step string, at time.Time) []byte {
	b = append(b, `{"status":"SUCCESS","artifacts":[{"uri":"s3://acme-artifacts/prod/`...)
	b = append(b, run...)
	b = append(b, '/')
	b = append(b, step...)
	b = append(b, `/manifest.json","kind":"dbt-manifest","sha256":"`...)
	b = w.appendHex(b)
	b = append(b, `","sizeBytes":`...)
	b = strconv.AppendInt(b, int64(w.random.IntN(1<<20)), 10)
	b = append(b, `}],"metrics":{"rowsWritten":`...)
	b = strconv.AppendInt(b, int64(w.random.IntN(1<<24)), 10)
	b = append(b, `},"completedAt":"`...)
	return append(appendTime(b, at), '"')
}

// fill closes an open object at the wanted size with a piece of text. If the members do not leave
// room, the payload is text only.
func (w *writer) fill(b []byte) []byte {
	const open, end = `"log":"`, `"}`
	if len(b)+len(","+open+end) > w.s.payloadBytes {
		b = append(b[:0], '{')
	} else {
		b = append(b, ',')
	}
	b = append(b, open...)
	need := w.s.payloadBytes - len(b) - len(end)
	from := w.random.IntN(textBytes)
	b = append(b, w.s.text[from:from+need]...)
	return append(b, end...)
}

// appendHex appends 64 random hexadecimal digits, in the form of a SHA-256.
func (w *writer) appendHex(b []byte) []byte {
	var sum [32]byte
	for i := 0; i < len(sum); i += 8 {
		binary.NativeEndian.PutUint64(sum[i:], w.random.Uint64())
	}
	return hex.AppendEncode(b, sum[:])
}

func appendTime(b []byte, at time.Time) []byte {
	return at.AppendFormat(b, "2006-01-02T15:04:05.000Z")
}

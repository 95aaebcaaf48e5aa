package events_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
)

// ledger records the answers that the producers of a scenario got, and the faults in them.
type ledger struct {
	mu struct {
		sync.Mutex
		known  map[string]uint64 // by run: the highest lastSeq in any answer
		first  map[place]*answered
		faults []error
	}
}

// place names an event: a key is unique inside its run.
type place struct{ run, key string }

// answered is the sum of the answers about one event.
type answered struct {
	answer    string               // the first answer, without its flags
	duplicate map[string]string    // answers to duplicates, by their content
	writer    *runlogv1.EventWrite // the stored event; nil: no answer says so yet
	lost      bool                 // a producer that sent it got no answer
}

func (l *ledger) init() {
	l.mu.known, l.mu.first = map[string]uint64{}, map[place]*answered{}
}

func (l *ledger) fault(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faultLocked(format, args...)
}

func (l *ledger) faultLocked(format string, args ...any) {
	l.mu.faults = append(l.mu.faults, fmt.Errorf(format, args...))
}

func (l *ledger) faults() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.mu.faults...)
}

// begin is called before each try of a send.
func (l *ledger) begin(s *send) *call {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &call{send: s, req: s.message(l.mu.known[s.run]), floor: l.mu.known[s.run], settled: true}
	for _, e := range s.events {
		if l.mu.first[s.place(e)] == nil {
			c.settled = false
		}
	}
	return c
}

func (l *ledger) lose(s *send) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.lost = true
}

// place finds the name of an event as docs/formats.md has it.
func (s *send) place(e *runlogv1.EventWrite) place {
	if e.IdempotencyKey != "" {
		return place{s.run, e.IdempotencyKey}
	}
	r := &runlogv1.EventRecord{
		RunId: s.run, LogicalAttemptId: max(1, e.LogicalAttemptId), EventType: e.EventType,
		PlanId: e.PlanId, PlanVersion: e.PlanVersion, ContractVersion: e.ContractVersion,
	}
	if e.StepId != "" {
		r.StepId = &e.StepId
	}
	if r.PlanVersion == "" {
		r.PlanVersion = "other" // known by the payload of the one event that names none
	}
	return place{s.run, derivedKey(r)}
}

// settle records an answer.
func (l *ledger) settle(c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.settleLocked(c); err != nil {
		l.faultLocked("%s, %d events, expected %v: %w", c.send.run, len(c.send.events), c.req.ExpectedLastSeq, err)
	}
}

func (l *ledger) settleLocked(c *call) error {
	s := c.send
	if c.err != nil {
		return checkRefusal(c)
	}
	if s.invalid >= 0 || len(c.results) != len(s.events) {
		return fmt.Errorf("taken with results %v; event %d is invalid", c.results, s.invalid)
	}
	s.succeeded = true
	var fresh []*runlogv1.AppendResult
	for i, r := range c.results {
		if err := l.resultLocked(c, i); err != nil {
			return fmt.Errorf("result %d is %v: %w", i, r, err)
		}
		if r.Persisted {
			fresh = append(fresh, r)
		}
		if r.RunSeq > c.lastSeq {
			return fmt.Errorf("runSeq %d, lastSeq %d", r.RunSeq, c.lastSeq)
		}
	}
	l.mu.known[s.run] = max(l.mu.known[s.run], c.lastSeq)
	return checkFresh(c, fresh)
}

// checkFresh requires that the new events of a request are contiguous, after everything
// acknowledged before the request, and at the expected place.
func checkFresh(c *call, fresh []*runlogv1.AppendResult) error {
	for i, r := range fresh {
		if r.RunSeq != fresh[0].RunSeq+uint64(i) || !proto.Equal(r.PersistedAt, fresh[0].PersistedAt) {
			return fmt.Errorf("new events are not in one piece: %v (APP-3, APP-5)", fresh)
		}
	}
	if len(fresh) == 0 {
		if c.lastSeq < c.floor {
			return fmt.Errorf("lastSeq %d, was at %d already", c.lastSeq, c.floor)
		}
		return nil
	}
	before := fresh[0].RunSeq - 1
	if last := fresh[len(fresh)-1].RunSeq; before < c.floor || last != c.lastSeq {
		return fmt.Errorf("new events %d to %d, lastSeq %d; was at %d already (APP-1)", before+1, last, c.lastSeq, c.floor)
	}
	if want := c.req.ExpectedLastSeq; want != nil && *want != before {
		return fmt.Errorf("stored after %d, expected %d (APP-4)", before, *want)
	}
	return nil
}

// resultLocked compares the answer about one event with the answers that other producers got.
func (l *ledger) resultLocked(c *call, i int) error {
	r, e := c.results[i], c.send.events[i]
	if r.Persisted == r.Idempotent || r.Diverged && !r.Idempotent {
		return errors.New("flags")
	}
	at := c.send.place(e)
	known := l.mu.first[at]
	if known == nil {
		known = &answered{answer: withoutFlags(r), duplicate: map[string]string{}}
		l.mu.first[at] = known
	}
	known.lost = known.lost || c.send.lost
	if withoutFlags(r) != known.answer {
		return fmt.Errorf("another was told %q (IDM-6)", known.answer)
	}
	if r.Persisted {
		if known.writer != nil || c.settled {
			return errors.New("another's was stored (IDM-6)")
		}
		known.writer = e
		return nil
	}
	said := marshal(e)
	if before, ok := known.duplicate[said]; ok && before != marshal(r) {
		return fmt.Errorf("the same duplicate was answered with %q (IDM-6)", before)
	}
	known.duplicate[said] = marshal(r)
	return nil
}

func marshal(m proto.Message) string {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func withoutFlags(r *runlogv1.AppendResult) string {
	return marshal(&runlogv1.AppendResult{EventId: r.EventId, RunSeq: r.RunSeq, PersistedAt: r.PersistedAt})
}

// checkRefusal accepts the two refusals that a scenario can cause, and no other.
func checkRefusal(c *call) error {
	var info *errdetails.ErrorInfo
	for _, d := range status.Convert(c.err).Details() {
		if i, ok := d.(*errdetails.ErrorInfo); ok {
			info = i
		}
	}
	s := c.send
	switch {
	case s.invalid >= 0:
		// The first event that differs from those before it is at fault. It may be a later one.
		index := info.GetMetadata()["index"]
		if info.GetReason() != string(s.reason) || index != strconv.Itoa(s.invalid) && s.reason != contract.ReasonRunScopeMismatch {
			return fmt.Errorf("want %s of event %d (APP-3): %w", s.reason, s.invalid, c.err)
		}
	case info.GetReason() != string(contract.ReasonSequenceConflict) || s.expect == nil:
		return fmt.Errorf("refused: %w", c.err)
	case c.settled:
		return fmt.Errorf("a retry of what was stored is refused: %w (APP-4)", c.err)
	default:
		last, err := strconv.ParseUint(info.Metadata["last_seq"], 10, 64)
		if err != nil || last < c.floor || last == *c.req.ExpectedLastSeq {
			return fmt.Errorf("refused though at %d already (APP-4): %w", c.floor, errors.Join(c.err, err))
		}
	}
	return nil
}

// judge reads all runs and compares them with the answers, and with the records of the last audit.
func (c *clients) judge(s scenario) error {
	var errs []error
	for i := range s.runs {
		run := fmt.Sprint("run/", i)
		records, err := c.readRun(run)
		if err == nil {
			err = errors.Join(servertest.AuditRun(records), sameBegin(c.read[run], records), c.ledger.audit(run, records, s.sends(run)))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", run, err))
		}
		c.read[run] = records
	}
	return errors.Join(errs...)
}

// readRun returns the records of a run; none when it does not exist.
func (c *clients) readRun(run string) ([]*runlogv1.EventRecord, error) {
	ctx, cancel := context.WithTimeout(context.Background(), servertest.Patience)
	defer cancel()
	records, err := (&grpcWire{node: c.node}).read(ctx, &runlogv1.ReadEventsRequest{RunId: run})
	if refusalReason(err) == string(contract.ReasonRunNotFound) {
		return nil, nil
	}
	return records, err
}

func refusalReason(err error) string {
	for _, d := range status.Convert(err).Details() {
		if i, ok := d.(*errdetails.ErrorInfo); ok {
			return i.Reason
		}
	}
	return ""
}

// sameBegin requires that existing records have not changed (APP-7).
func sameBegin(before, now []*runlogv1.EventRecord) error {
	for i := range before {
		if i >= len(now) || marshal(before[i]) != marshal(now[i]) {
			return fmt.Errorf("record %d is not what it was, %v", i+1, before[i])
		}
	}
	return nil
}

// sends are the requests of a run, each once.
func (s scenario) sends(run string) []*send {
	var out []*send
	for _, r := range s.rounds {
		for _, tasks := range r.producers {
			for _, task := range tasks {
				for _, s := range task.sends {
					if (run == "" || s.run == run) && !slices.Contains(out, s) {
						out = append(out, s)
					}
				}
			}
		}
	}
	return out
}

func (l *ledger) audit(run string, records []*runlogv1.EventRecord, sends []*send) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	stored := map[string]int{}
	for i, r := range records {
		if r.RunSeq != uint64(i)+1 || i > 0 && servertest.SinceEpoch(r.PersistedAt) < servertest.SinceEpoch(records[i-1].PersistedAt) {
			return fmt.Errorf("record %d is %v (APP-1, APP-5)", i+1, r)
		}
		if at, ok := stored[r.IdempotencyKey]; ok {
			return fmt.Errorf("records %d and %d have one key (IDM-6)", at+1, i+1)
		}
		stored[r.IdempotencyKey] = i
		if r.IdempotencyKey != derivedKey(r) && !strings.HasPrefix(r.IdempotencyKey, "pause-") {
			return fmt.Errorf("record %v has another key than the derived one (IDM-1)", r)
		}
		if err := l.recordLocked(run, r); err != nil {
			return fmt.Errorf("record %v: %w", r, err)
		}
	}
	for at := range l.mu.first {
		if _, ok := stored[at.key]; at.run == run && !ok {
			return fmt.Errorf("an acknowledged event, key %s, is not there (APP-2)", at.key)
		}
	}
	for _, s := range sends {
		if err := s.checkWhole(records, stored); err != nil {
			return err
		}
	}
	return nil
}

// recordLocked compares a record with the answers about it, and with the event that was stored.
func (l *ledger) recordLocked(run string, r *runlogv1.EventRecord) error {
	known := l.mu.first[place{run, r.IdempotencyKey}]
	if known == nil {
		return errors.New("no answer named it")
	}
	if withoutFlags(&runlogv1.AppendResult{EventId: r.EventId, RunSeq: r.RunSeq, PersistedAt: r.PersistedAt}) != known.answer {
		return fmt.Errorf("the answers said %q (IDM-6)", known.answer)
	}
	switch e := known.writer; {
	case e == nil && !known.lost:
		return errors.New("no answer says that it was inserted")
	case e != nil && !isOf(r, e):
		return fmt.Errorf("is not the event that was stored, %v", e)
	}
	for said, answer := range known.duplicate {
		var e runlogv1.EventWrite
		var a runlogv1.AppendResult
		if err := errors.Join(proto.Unmarshal([]byte(said), &e), proto.Unmarshal([]byte(answer), &a)); err != nil {
			return err
		}
		if diverged := !reflect.DeepEqual(meaning(e.GetPayloadJson()), meaning(r.GetPayloadJson())); a.Diverged != diverged {
			return fmt.Errorf("diverged is %v of %v (IDM-7)", a.Diverged, &e)
		}
	}
	return nil
}

func meaning(payload []byte) map[string]any {
	if len(payload) == 0 {
		return map[string]any{}
	}
	return decodeValue(payload)
}

// isOf tells whether a record holds an event as it was sent.
func isOf(r *runlogv1.EventRecord, e *runlogv1.EventWrite) bool {
	text := string(e.GetPayloadJson())
	if text == "" {
		text = "{}"
	}
	return (e.EventId == "" || r.EventId == e.EventId) && r.EventType == e.EventType && r.GetStepId() == e.StepId &&
		r.EngineAttemptId == max(1, e.EngineAttemptId) && r.GetEmittedBy() == e.EmittedBy &&
		proto.Equal(r.EmittedAt, e.EmittedAt) && string(r.GetPayloadJson()) == text &&
		r.GetCausedBySignalId() == e.CausedBySignalId && r.GetParentEventId() == e.ParentEventId
}

// checkWhole requires that the events that only this request has are all stored or none. Only other
// events of the request may lie between them (APP-3).
func (s *send) checkWhole(records []*runlogv1.EventRecord, stored map[string]int) error {
	var at []int
	for _, m := range s.markers {
		if i, ok := stored[s.place(s.events[m]).key]; ok {
			at = append(at, i)
		}
	}
	want := 0
	if s.succeeded {
		want = len(s.markers)
	}
	if len(at) != want || !slices.IsSorted(at) {
		return fmt.Errorf("of a request, taken: %v, whose events %v are its own, records %v are there (APP-3)", s.succeeded, s.markers, at)
	}
	if len(at) == 0 {
		return nil
	}
	for i := at[0]; i <= at[len(at)-1]; i++ {
		own := slices.ContainsFunc(s.events, func(e *runlogv1.EventWrite) bool { return s.place(e).key == records[i].IdempotencyKey })
		if !own || !proto.Equal(records[i].PersistedAt, records[at[0]].PersistedAt) {
			return fmt.Errorf("record %d is among those of a request, records %v (APP-3)", i+1, at)
		}
	}
	return nil
}

// sendAllAgain repeats every request that was accepted or invalid, and returns the answers.
func (c *clients) sendAllAgain(s scenario) []string {
	ctx, cancel := context.WithTimeout(context.Background(), 2*servertest.Patience)
	defer cancel()
	var answers []string
	for _, s := range s.sends("") {
		if !s.succeeded && s.invalid < 0 {
			continue
		}
		again := c.ledger.begin(s)
		resp, err := c.link.Load().events.AppendEvents(ctx, again.req)
		again.answer(resp.GetResults(), resp.GetLastSeq(), err)
		c.ledger.settle(again)
		for _, r := range again.results {
			if r.Persisted {
				c.ledger.fault("%s: %v is stored again (IDM-6)", s.run, r)
			}
		}
		if err != nil {
			answers = append(answers, refusalReason(err))
			continue
		}
		resp.Position = "" // that of this answer
		answers = append(answers, marshal(resp))
	}
	return answers
}

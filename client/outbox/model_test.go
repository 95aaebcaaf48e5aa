package outbox

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	runlogv1 "runlog/proto/runlog/v1"
)

const modelPath = "dir/box"

// request is an append of one event, with a payload of some bytes.
func request(run string, n, size int) *runlogv1.AppendEventsRequest {
	payload := fmt.Sprintf(`{"n":%d,"pad":%q}`, n, strings.Repeat("x", size))
	return &runlogv1.AppendEventsRequest{RunId: run, Events: []*runlogv1.EventWrite{{
		EventType: "StepStarted", TenantId: "acme", StepId: fmt.Sprintf("s%d", n), LogicalAttemptId: 1, EngineAttemptId: 1,
		IdempotencyKey: fmt.Sprintf("key-%d", n), PayloadForm: &runlogv1.EventWrite_PayloadJson{PayloadJson: []byte(payload)},
	}}}
}

// fate is what the model knows of a request that was given to Put.
type fate struct {
	req      *runlogv1.AppendEventsRequest
	id       uint64 // 0: Put has failed
	rejected bool
	// removed: Done or Discard was called.
	removed bool
	reason  string
	// loose: a call of Discard or Close has failed, so that a Done or Reject may have no effect.
	loose bool
	// gone: Discard has returned, so that the record never comes back.
	gone bool
}

// model is an outbox on a file system that can crash, and what must be in it. A request is found
// by the n in its payload, because a failed Put has no id.
type model struct {
	disk    *crashFS
	box     *Outbox
	fates   []*fate
	now     time.Time
	failing error // of a step that fails; nil: none did since the last Put that succeeded
	hit     bool  // it has failed
	max     int64
}

func (m *model) open(t *rapid.T) {
	m.disk.fault = nil
	box, err := Open(modelPath, Options{files: m.disk, now: func() time.Time { return m.now }, compactBytes: 300, MaxBytes: m.max})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	m.box = box
}

// idle waits until the writer has nothing to do, so that a test can be repeated.
func (m *model) idle() { idle(m.box) }

func idle(o *Outbox) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.mu.queue) > 0 || o.mu.busy {
		o.rested.Wait()
	}
}

func (m *model) live() []*fate {
	return slices.DeleteFunc(slices.Clone(m.fates), func(f *fate) bool { return f.id == 0 || f.removed })
}

func (m *model) put(t *rapid.T) {
	f := &fate{req: request(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "run"), len(m.fates), rapid.IntRange(0, 400).Draw(t, "size"))}
	m.fates = append(m.fates, f)
	before := m.box.Stats()
	id, err := m.box.Put(t.Context(), f.req)
	m.idle()
	full := before.Bytes+int64(frameBytes(proto.Size(f.req))) > m.max
	switch {
	case errors.Is(err, ErrFull) != full:
		t.Fatalf("put: %v with %d of %d bytes in use", err, before.Bytes, m.max)
	case err == nil:
		if id == 0 {
			t.Fatal("put returned no id")
		}
		f.id = id
		if m.hit {
			m.failing, m.hit = nil, false
		}
	case full:
		f.removed = true // It must never appear.
	case m.failing == nil:
		t.Fatalf("put: %v", err)
	case !errors.Is(err, m.failing):
		t.Fatalf("put: %v does not wrap %v", err, m.failing)
	}
}

// breakDisk makes a coming step fail once.
func (m *model) breakDisk(t *rapid.T) {
	err := rapid.SampledFrom([]error{syscall.ENOSPC, syscall.EIO}).Draw(t, "err")
	after := rapid.IntRange(1, 4).Draw(t, "after")
	m.disk.mu.Lock()
	at := m.disk.mu.steps + after
	m.disk.mu.Unlock()
	if m.hit {
		return // One fault at a time.
	}
	m.failing = err
	m.disk.fault = func(step int, _ string) error {
		if step == at {
			m.hit = true
			return err
		}
		return nil
	}
}

// reopen checks the outbox after an orderly end, or after a crash.
func (m *model) reopen(t *rapid.T, crashed bool) {
	m.failing, m.hit = nil, false
	m.open(t)
	found := map[int]Record{}
	var last uint64
	for r := range m.all(t) {
		n := number(t, r)
		if n >= len(m.fates) || !proto.Equal(m.fates[n].req, r.Request) {
			t.Fatalf("record %d is none that was put: %v", r.ID, r.Request)
		}
		if _, twice := found[n]; twice || r.ID <= last {
			t.Fatalf("record %d comes after %d, or twice", r.ID, last)
		}
		last = r.ID
		found[n] = r
	}
	for n, f := range m.fates {
		r, present := found[n]
		switch {
		case f.id == 0 && present && !crashed, f.id == 0 && f.removed && present:
			t.Fatalf("request %d of a failed Put is there", n)
		case f.id == 0 && present:
			f.id = r.ID // The outcome of the Put was not known.
		case f.id == 0:
		case !present && !f.removed:
			t.Fatalf("record %d is lost; %v", f.id, m.box.Recovery())
		case present && f.removed && !crashed && !f.loose:
			t.Fatalf("record %d was removed and is there", f.id)
		case present && f.gone:
			t.Fatalf("record %d was discarded and is there", f.id)
		case present && r.ID != f.id:
			t.Fatalf("record %d has id %d now", f.id, r.ID)
		case present && !crashed && !f.loose && (r.Reason != "") != f.rejected:
			t.Fatalf("record %d: rejected %v, reason %q", f.id, f.rejected, r.Reason)
		case present && r.Reason != "" && r.Reason != f.reason:
			t.Fatalf("record %d has reason %q, want %q", f.id, r.Reason, f.reason)
		}
		if f.id > 0 {
			f.removed, f.rejected, f.loose = !present, r.Reason != "", false
		}
	}
}

// all yields all records in the order of their ids.
func (m *model) all(t *rapid.T) func(func(Record) bool) {
	var all []Record
	for _, seq := range []func(func(Record, error) bool){m.box.Pending(), m.box.Rejected()} {
		for r, err := range seq {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, r)
		}
	}
	slices.SortStableFunc(all, func(a, b Record) int { return int(a.ID) - int(b.ID) })
	return slices.Values(all)
}

func number(t *rapid.T, r Record) int {
	var n int
	if _, err := fmt.Sscanf(r.Request.GetEvents()[0].GetStepId(), "s%d", &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestModel compares an outbox with a model of it, over crashes that lose and tear what was not
// synced, full disks and failed fsyncs. What Put acknowledged is there until Done or Discard, in
// order; nothing else is.
func TestModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := &model{disk: newCrashFS(), now: time.Unix(1_770_000_000, 0), max: rapid.Int64Range(500, 8000).Draw(t, "max")}
		m.open(t)
		defer func() { m.box.Close() }()
		pick := func(t *rapid.T, from []*fate) *fate {
			if len(from) == 0 {
				t.Skip("no record")
			}
			return rapid.SampledFrom(from).Draw(t, "record")
		}
		t.Repeat(map[string]func(*rapid.T){
			"put":  m.put,
			"put2": m.put,
			"done": func(t *rapid.T) {
				f := pick(t, m.live())
				m.box.Done(f.id)
				m.idle()
				f.removed = f.removed || !f.rejected
			},
			"reject": func(t *rapid.T) {
				f := pick(t, m.live())
				reason := rapid.StringMatching("[a-z]{1,20}").Draw(t, "reason")
				m.box.Reject(f.id, reason)
				m.idle()
				if !f.rejected {
					f.reason, f.rejected = reason, true
				}
			},
			"discard": func(t *rapid.T) {
				f := pick(t, m.live())
				n, err := m.box.Discard(t.Context(), f.id)
				m.idle()
				if want := f.rejected; (n == 1) != want || err != nil && m.failing == nil {
					t.Fatalf("discard: %d, %v", n, err)
				}
				f.removed, f.loose, f.gone = f.rejected, f.loose || err != nil, f.rejected && err == nil
			},
			"break":  m.breakDisk,
			"repair": func(*rapid.T) { m.disk.fault = nil; m.now = m.now.Add(2 * retryEvery) },
			"close": func(t *rapid.T) {
				err := m.box.Close()
				if err != nil && m.failing == nil {
					t.Fatalf("close: %v", err)
				}
				for _, f := range m.fates {
					f.loose = f.loose || err != nil
				}
				m.reopen(t, false)
				if r := m.box.Recovery().String(); err == nil && r != "" {
					t.Fatalf("an orderly end left %s", r)
				}
			},
			"crash": func(t *rapid.T) {
				draw := func(n int) int { return rapid.IntRange(0, n).Draw(t, "survives") }
				left := m.disk.crash(draw, rapid.Bool().Draw(t, "torn"))
				_ = m.box.Close()
				m.disk = left
				m.reopen(t, true)
			},
			"": func(t *rapid.T) {
				var want, got []uint64
				for _, f := range m.live() {
					want = append(want, f.id)
				}
				for r := range m.all(t) {
					got = append(got, r.ID)
				}
				if slices.Sort(want); !slices.Equal(want, got) {
					t.Fatalf("records %v, want %v", got, want)
				}
			},
		})
	})
}

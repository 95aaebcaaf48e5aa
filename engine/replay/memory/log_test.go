package memory

import (
	"context"
	"errors"
	"iter"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/engine/replay"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// fakeLog is the log of one run.
type fakeLog struct {
	events []*runlogv1.EventRecord
	// fails ends each read behind so many events. 0: none ends.
	fails int
}

var errRead = errors.New("the connection has ended")

func (l *fakeLog) ReadEvents(_ context.Context, req *runlogv1.ReadEventsRequest) iter.Seq2[*runlogv1.EventRecord, error] {
	return func(yield func(*runlogv1.EventRecord, error) bool) {
		n := 0
		for _, e := range l.events {
			if e.GetRunSeq() <= req.GetAfterSeq() {
				continue
			}
			if n++; l.fails > 0 && n > l.fails {
				yield(nil, errRead)
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// add adds an event with a stamp in seconds.
func (l *fakeLog) add(eventType, step string, stamp int64, payload string) {
	l.events = append(l.events, &runlogv1.EventRecord{
		EventType: eventType, StepId: &step, RunSeq: uint64(len(l.events) + 1), LogicalAttemptId: 1, EngineAttemptId: 1,
		PersistedAt: timestamppb.New(time.Unix(stamp, 0)), PayloadForm: &runlogv1.EventRecord_PayloadJson{PayloadJson: []byte(payload)},
	})
}

func (l *fakeLog) read(t *testing.T, m *Memory) *replay.State {
	t.Helper()
	s, err := m.State(t.Context(), "run")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestRestoredLogATT5: the log of a cluster that was restored from a backup ends before what was
// read, and goes on in another way. A state is what the log has now.
func TestRestoredLogATT5(t *testing.T) {
	t.Parallel()
	for name, after := range map[string][]string{
		"shorter":   {},
		"as long":   {contract.StepStarted, contract.StepFailed},
		"longer":    {contract.StepStarted, contract.StepFailed, contract.RunFailed},
		"the start": {contract.StepStarted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &fakeLog{}
			m := New(l, nil, 1<<20)
			l.add(contract.RunStarted, "", 1, "{}")
			backup := l.events
			l.add(contract.StepStarted, "A", 2, "{}")
			l.add(contract.StepCompleted, "A", 3, "{}")
			l.read(t, m)
			l.events = backup[:1:1]
			for i, eventType := range after {
				l.add(eventType, "A", int64(10+i), "{}")
			}
			want := replay.New()
			for _, e := range l.events {
				want.Apply(e)
			}
			for range 2 {
				if got := l.read(t, m); !reflect.DeepEqual(got, want.Clone()) {
					t.Errorf("the state is %+v, want %+v", got, want)
				}
			}
		})
	}
}

// TestFailedReadsAreCounted: what a read has left before it failed takes memory too.
func TestFailedReadsAreCounted(t *testing.T) {
	t.Parallel()
	l := &fakeLog{fails: 50}
	m := New(l, nil, 1<<20)
	text := `{"text":"` + strings.Repeat("x", 10_000) + `"}`
	for i := range 100 {
		l.add(contract.StepCompleted, string(rune('a'+i)), 1, text)
	}
	if _, err := m.State(t.Context(), "run"); !errors.Is(err, errRead) {
		t.Fatal(err)
	}
	if m.used < 50*10_000 {
		t.Errorf("%d bytes are counted", m.used)
	}
	if _, err := m.State(t.Context(), "run"); !errors.Is(err, errRead) || m.used > m.most {
		t.Errorf("%d bytes are used: %v", m.used, err)
	}
}

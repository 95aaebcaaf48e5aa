package memory

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/engine/replay"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/seed"
)

// sharedLog is the log of some runs, to which several goroutines append.
type sharedLog struct {
	mu   sync.Mutex
	rng  *rand.Rand
	runs map[string][]*runlogv1.EventRecord
}

func (l *sharedLog) of(runID string) []*runlogv1.EventRecord {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.runs[runID]
	return list[:len(list):len(list)]
}

func (l *sharedLog) ReadEvents(_ context.Context, req *runlogv1.ReadEventsRequest) iter.Seq2[*runlogv1.EventRecord, error] {
	return func(yield func(*runlogv1.EventRecord, error) bool) {
		for _, e := range l.of(req.GetRunId()) {
			if e.GetRunSeq() <= req.GetAfterSeq() {
				continue
			}
			if l.fails() {
				yield(nil, errRead)
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// fails reports whether a read fails.
func (l *sharedLog) fails() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rng.IntN(50) == 0
}

// append appends an event behind the last one that is known; nil: another one came first.
func (l *sharedLog) append(runID string, after uint64, e *runlogv1.EventRecord) *runlogv1.EventRecord {
	l.mu.Lock()
	defer l.mu.Unlock()
	if uint64(len(l.runs[runID])) != after {
		return nil
	}
	e.RunSeq = after + 1
	e.PersistedAt = timestamppb.New(time.Unix(1, int64(after)))
	l.runs[runID] = append(l.runs[runID], e)
	return e
}

// TestManyReadersAndWriters: goroutines read runs, go on with them, and hand over what they have, a
// memory that is too small forgets, and reads fail. Each state is what the
// log had.
func TestManyReadersAndWriters(t *testing.T) {
	t.Parallel()
	s := seed.New(t)
	l := &sharedLog{rng: rand.New(rand.NewPCG(s, 0)), runs: map[string][]*runlogv1.EventRecord{}}
	m := New(l, nil, 40<<10)
	var all sync.WaitGroup
	for i := range 8 {
		rng := rand.New(rand.NewPCG(s, uint64(1+i)))
		all.Go(func() {
			for range 300 {
				runID := fmt.Sprint("run ", rng.IntN(4))
				s, err := m.State(t.Context(), runID)
				if err != nil {
					continue
				}
				for s.LastSeq < 60 && rng.IntN(3) > 0 {
					step := fmt.Sprint(rng.IntN(5))
					eventType := []string{contract.StepStarted, contract.StepCompleted, contract.StepFailed, "StepMeasured"}[rng.IntN(4)]
					e := l.append(runID, s.LastSeq, &runlogv1.EventRecord{
						EventType: eventType, StepId: &step, LogicalAttemptId: 1 + rng.Uint32N(3), EngineAttemptId: 1,
						PayloadForm: &runlogv1.EventRecord_PayloadJson{PayloadJson: fmt.Appendf(nil, `{"output":"%s"}`, strings.Repeat("x", rng.IntN(2000)))},
					})
					if e == nil {
						break
					}
					s.Apply(e)
				}
				want := replay.New()
				for _, e := range l.of(runID)[:s.LastSeq] {
					want.Apply(e)
				}
				if got := s.Clone(); !reflect.DeepEqual(got, want.Clone()) {
					t.Errorf("the state is %+v, want %+v", got, want)
				}
				if rng.IntN(2) == 0 {
					m.Keep(runID, s)
				}
			}
		})
	}
	all.Wait()
	var sum int64
	for e := m.order.Front(); e != nil; e = e.Next() {
		r := e.Value.(*remembered)
		if sum += r.size; r.size != r.value.(*knownRun).state.Size() {
			t.Errorf("%s takes %d bytes, and %d are counted", r.key, r.value.(*knownRun).state.Size(), r.size)
		}
	}
	if sum != m.used || m.used > m.most || m.order.Len() != len(m.entries) {
		t.Errorf("%d bytes are counted, %d are used of %d", m.used, sum, m.most)
	}
}

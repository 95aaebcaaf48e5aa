package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/bench/target"
	runlogv1 "runlog/proto/runlog/v1"
)

// TestMain makes the test binary behave as the servers that it starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == etcdCommand || os.Args[1] == natsCommand || os.Args[1] == kafkaCommand) {
		main()
		return
	}
	os.Exit(m.Run())
}

func event(step string) *runlogv1.EventWrite {
	return &runlogv1.EventWrite{
		EventId: "018f4e7a-1c2b-7def-8123-456789abcdef", EventType: "StepStarted", StepId: step, TenantId: "t", ProjectId: "p", EnvironmentId: "e",
		PlanId: "plan", PlanVersion: "1", LogicalAttemptId: 1, EngineAttemptId: 1, EmittedAt: timestamppb.Now(),
		PayloadForm: &runlogv1.EventWrite_PayloadJson{PayloadJson: []byte(`{"a": 1}`)},
	}
}

func request(run string, steps ...string) *runlogv1.AppendEventsRequest {
	req := &runlogv1.AppendEventsRequest{RunId: run}
	for _, s := range steps {
		req.Events = append(req.Events, event(s))
	}
	return req
}

// TestPeers holds every adapter to what the comparison is about: numbers that rise within a run,
// duplicates that are answered as the first time and not stored again, and nothing left behind.
func TestPeers(t *testing.T) {
	for _, k := range kinds() {
		if k.name == "runlog" {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			if _, err := postgresBin(); err != nil && k.name[:4] == "post" {
				t.Skip(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			// Below a directory that is ours, as bench.Run makes it: PostgreSQL's user has to get
			// there.
			parent, err := os.MkdirTemp("", "runlog-peers-test-")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(parent)
			dir, err := os.MkdirTemp(parent, "system-")
			if err != nil {
				t.Fatal(err)
			}
			opened, err := k.open(&common{nodes: 1}, min(k.usual, 3))(ctx, dir)
			if err != nil {
				t.Fatal(err)
			}
			checkAppends(ctx, t, k, opened)
			checkHotRun(ctx, t, k, opened)
			if facts := opened.(target.Describer).Describe(); len(facts) < 3 {
				t.Errorf("%v", facts)
			}
			closeAll(t, opened)
		})
	}
}

// TestEtcdCluster: three members do what one does, and the leader is the one that is talked to.
func TestEtcdCluster(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	opened, err := openEtcd(counted, 3)(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	checkAppends(ctx, t, kind{name: "etcd"}, opened)
	checkHotRun(ctx, t, kind{name: "etcd"}, opened)
	e := opened.(*etcd)
	if err := e.Check(ctx); err != nil || len(e.members) != 3 || e.leader.member == 0 {
		t.Errorf("%v, %+v", err, e.leader)
	}
	e.leader.term--
	if err := e.Check(ctx); err == nil {
		t.Error("a leader of another term is taken for the same")
	}
	closeAll(t, opened)
}

// closeAll closes a target and sees to it that its processes are gone.
func closeAll(t *testing.T, opened target.Target) {
	t.Helper()
	var pids []int
	for _, p := range processesOf(opened) {
		pids = append(pids, p.ID())
	}
	if err := opened.Close(); err != nil {
		t.Error(err)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d is still there: %v", pid, err)
		}
	}
}

func processesOf(opened target.Target) []*target.Process {
	switch x := opened.(type) {
	case *postgres:
		return []*target.Process{x.process}
	case *etcd:
		var all []*target.Process
		for _, m := range x.members {
			all = append(all, m.process)
		}
		return all
	default:
		return []*target.Process{x.(*jetStream).process}
	}
}

func checkAppends(ctx context.Context, t *testing.T, k kind, opened target.Target) {
	t.Helper()
	var last uint64
	seqs := map[string]uint64{}
	// expect says which of the steps are new.
	expect := func(run string, steps []string, fresh ...string) {
		t.Helper()
		res, err := opened.Append(ctx, request(run, steps...))
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range res.Results {
			isNew := slices.Contains(fresh, steps[i]) && slices.Index(steps, steps[i]) == i
			key := run + "/" + steps[i]
			switch {
			case r.Persisted != isNew || r.Idempotent == isNew:
				t.Fatalf("%s: %v, want new %t", key, r, isNew)
			case isNew && (r.RunSeq <= last || !k.sparse && r.RunSeq != last+1):
				t.Fatalf("%s: runSeq %d after %d", key, r.RunSeq, last)
			case !isNew && seqs[key] != r.RunSeq:
				t.Fatalf("%s: runSeq %d, was %d", key, r.RunSeq, seqs[key])
			case r.EventId != "018f4e7a-1c2b-7def-8123-456789abcdef":
				t.Fatalf("%s: %v", key, r)
			}
			seqs[key] = r.RunSeq
			last = max(last, r.RunSeq)
		}
	}
	expect("r1", []string{"a"}, "a")
	expect("r1", []string{"b"}, "b")
	expect("r1", []string{"a"})
	expect("r1", []string{"c", "d", "e"}, "c", "d", "e")
	expect("r1", []string{"c", "d", "e"})
	expect("r1", []string{"f", "b", "g"}, "f", "g")
	expect("r1", []string{"h", "h", "a", "i", "h"}, "h", "i")
	last = 0
	expect("r2", []string{"a"}, "a")
	first, err := opened.Append(ctx, request("r3", "x"))
	again, err2 := opened.Append(ctx, request("r3", "x"))
	if err := errors.Join(err, err2); err != nil || !first.Results[0].PersistedAt.AsTime().Equal(again.Results[0].PersistedAt.AsTime()) {
		t.Errorf("%v, then %v, %v", first, again, err)
	}
	if _, err := opened.Append(ctx, &runlogv1.AppendEventsRequest{RunId: "r4", Events: []*runlogv1.EventWrite{{EventType: "?"}}}); err == nil {
		t.Error("an event that breaks the contract is stored")
	}
}

// checkHotRun appends to one run from all sides.
func checkHotRun(ctx context.Context, t *testing.T, k kind, opened target.Target) {
	t.Helper()
	var mu sync.Mutex
	var all []uint64
	var done sync.WaitGroup
	for i := range 4 {
		done.Go(func() {
			for n := range 10 {
				req := request("hot", fmt.Sprintf("%d-%d", i, n))
				if n%3 == 0 {
					req = request("hot", fmt.Sprintf("%d-%d", i, n), fmt.Sprintf("%d-%d-more", i, n))
				}
				res, err := opened.Append(ctx, req)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, r := range res.Results {
					all = append(all, r.RunSeq)
				}
				mu.Unlock()
			}
		})
	}
	done.Wait()
	slices.Sort(all)
	for i := 1; i < len(all); i++ {
		if all[i] == all[i-1] || !k.sparse && all[i] != uint64(i+1) {
			t.Fatalf("the run has the numbers %v", all)
		}
	}
	if len(all) != 4*14 {
		t.Errorf("%s events", strconv.Itoa(len(all)))
	}
}

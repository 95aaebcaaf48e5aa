package queue_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/machine/queue"
	"runlog/storage/storagetest"
)

// TestDrainsAreBoundedPRJ9: a look at the pauses reads those that are due, and one more of each
// queue, however many drain. A timeout is raised by one command alone.
func TestDrainsAreBoundedPRJ9(t *testing.T) {
	t.Parallel()
	l, err := storagetest.Open(storage.Options{FS: vfs.NewMem(), Machines: []storage.Machine{queue.Machine{}}})
	if err != nil {
		t.Fatal(err)
	}
	apply := func(clock int64, ops ...storage.Operation) storage.Outcome {
		t.Helper()
		c, err := storage.EncodeCommand(ops...)
		if err != nil {
			t.Fatal(err)
		}
		p := storage.NewProposal(storagetest.Cluster, 0)
		p.Add(c)
		o, err := l.Store.Apply(l.Applied().Index+1, 1, p.Seal(clock))
		if err := errors.Join(err, o[0].Err); err != nil {
			t.Fatal(err)
		}
		return o[0]
	}
	event := func(run, eventType, payload string) storage.Operation {
		t.Helper()
		e := storagetest.Event(run, 0)
		e.Type, e.StepID, e.Payload = eventType, "", []byte(payload)
		e.SetAttempt(1)
		op, err := storage.AppendOperation(&storage.Append{RunID: run, Events: []contract.Event{e}})
		if err != nil {
			t.Fatal(err)
		}
		return op
	}
	const runs = 1000
	timeout, own := 500*time.Nanosecond, 2000*time.Nanosecond
	name := queue.Name{Tenant: "tenant", Project: "project", Environment: "prod", Queue: "q"}
	settings, err := queue.Put(name, queue.Change{DrainTimeout: &own})
	if err != nil {
		t.Fatal(err)
	}
	apply(1, settings)
	for i := range runs {
		run := fmt.Sprint("run-", i)
		ops := []storage.Operation{event(run, contract.RunQueued, `{}`)}
		if i%2 == 0 {
			op, err := queue.Request(&queue.RunRequest{Key: [32]byte{byte(i), byte(i >> 8)}, Name: name, RunID: run})
			if err != nil {
				t.Fatal(err)
			}
			ops = append(ops, op)
		}
		ops = append(ops, event(run, contract.RunStarted, `{}`), event(run, contract.RunPaused, `{"draining":true}`))
		apply(1000+int64(i), ops...)
	}
	apply(2000, event("plain", contract.RunPaused, `{"draining":"true"}`), event("other", contract.RunResumed, `{"draining":true}`))
	look := func(at int64, most int) ([]queue.Drain, int) {
		t.Helper()
		list, reads, err := queue.CountDrains(l.Store, at, timeout, most)
		if err != nil {
			t.Fatal(err)
		}
		return list, reads
	}
	if list, reads := look(1000, 100); len(list) != 0 || reads > 8 {
		t.Errorf("before the first timeout: %d pauses with %d reads", len(list), reads)
	}
	if list, reads := look(1510, 100); len(list) != 5 || list[0] != (queue.Drain{RunID: "run-1", PausedAt: 1001, Timeout: timeout}) || reads > 13 {
		t.Errorf("pauses %v with %d reads", list, reads)
	}
	list, reads := look(1<<40, 100)
	if len(list) != 100 || reads > 102 {
		t.Errorf("%d pauses with %d reads", len(list), reads)
	}
	raised := make([]bool, len(list))
	for i := range raised {
		raised[i] = i%2 == 0
	}
	end, err := queue.EndDrains(list, raised)
	if err != nil {
		t.Fatal(err)
	}
	for again, want := range []int{50, 0} {
		got, err := queue.DecodeEndDrains(apply(3000, end).Answers[0].Reply)
		if n, errCount := queue.DrainTimeouts(l.Store); errors.Join(err, errCount) != nil || len(got) != want || n != 50 {
			t.Errorf("time %d: raised %v, %v; counted %d, %v", again, got, err, n, errCount)
		}
	}
	all := 0
	for {
		list, _ := look(1<<40, queue.MaxDrains)
		if len(list) == 0 {
			break
		}
		if all += len(list); list[0].Queue != 0 && list[0].Timeout != own {
			t.Errorf("pause %v", list[0])
		}
		end, err := queue.EndDrains(list, make([]bool, len(list)))
		if err != nil {
			t.Fatal(err)
		}
		apply(4000, end)
	}
	if all != runs-100 {
		t.Errorf("%d pauses were left, want %d", all, runs-100)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

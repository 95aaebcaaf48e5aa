package queue_test

import (
	"encoding/binary"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"google.golang.org/protobuf/proto"

	recordv1 "runlog/proto/record/v1"
	"runlog/storage/machine/queue"
	"runlog/storage/storagetest"
)

// check compares all that can be read with the model, and the tables with each other.
func (b *bed) check() {
	b.t.Helper()
	b.checkQueues()
	b.checkRuns()
	b.checkTables()
	for _, filter := range []queue.Name{{}, {Tenant: "a"}, {Tenant: "a", Project: "p"}, names[0], names[1]} {
		has, err := queue.HasLeasable(b.Store, filter)
		if want := len(b.model.leasable(filter)) > 0; err != nil || has != want {
			b.t.Fatalf("a run to lease within %s: %t, %v; want %t", filter, has, err, want)
		}
	}
}

func (b *bed) checkQueues() {
	b.t.Helper()
	m := b.model
	var want []*queue.Queue
	for _, name := range names {
		got, err := queue.Find(b.Store, name)
		q := m.queues[name]
		if q == nil {
			if err != nil || got != nil {
				b.t.Fatalf("queue %s is found as %v, %v", name, got, err)
			}
			continue
		}
		w := &queue.Queue{
			Number: q.number, Name: name, Settings: q.settings, CreatedAt: q.created, Ready: m.count(name, queue.Ready),
			Delayed: m.count(name, queue.Delayed), Leased: m.count(name, queue.Leased), Running: m.count(name, queue.Running),
			Exhausted: m.count(name, queue.Exhausted), Requests: q.requests, Starts: q.starts, Ends: q.ends,
		}
		for i, r := range m.of(name, queue.Ready) {
			w.ReadyBy[r.Priority]++
			if i == 0 {
				w.OldestAt = r.EnqueuedAt
			}
		}
		if err != nil || !reflect.DeepEqual(got, w) {
			b.t.Fatalf("queue %s is\n%+v, %v; want\n%+v", name, got, err, w)
		}
		want = append(want, w)
	}
	var list []*queue.Queue
	for more, behind := true, (queue.Name{}); more; {
		page, rest, err := queue.List(b.Store, queue.Name{}, behind, 2)
		if err != nil || rest && len(page) != 2 {
			b.t.Fatalf("%d queues on a page, more %t, %v", len(page), rest, err)
		}
		list, more = append(list, page...), rest
		if more {
			behind = page[1].Name
		}
	}
	slices.SortFunc(want, func(a, b *queue.Queue) int { return slices.Compare(texts(a.Name), texts(b.Name)) })
	if len(list) != len(want) || len(list) > 0 && !reflect.DeepEqual(list, want) {
		b.t.Fatalf("queues %v, want %v", list, want)
	}
}

// checkRuns compares the runs one by one, and the order in which a queue lists them (QUE-5).
func (b *bed) checkRuns() {
	b.t.Helper()
	m := b.model
	for id := range m.fences {
		got, _, err := queue.ReadRun(b.Store, id)
		if want := m.runs[id]; err != nil || (got == nil) != (want == nil) || got != nil && *got != want.Run {
			b.t.Fatalf("run %s is\n%+v, %v; want\n%+v", id, got, err, want)
		}
		run, err := b.Store.Run(id)
		if err != nil || run.Fence != m.fences[id] {
			b.t.Fatalf("run %s has fence %d, %v; want %d", id, run.Fence, err, m.fences[id])
		}
	}
	for key, r := range m.requests {
		if id, err := queue.ByKey(b.Store, key); err != nil || id != r.runID {
			b.t.Fatalf("the request of %s is of %q, %v", r.runID, id, err)
		}
	}
	exhausted := []string{}
	for _, name := range names {
		var want, got []string
		if m.queues[name] != nil {
			for _, r := range m.sorted(name) {
				want = append(want, r.RunID)
			}
		}
		for _, s := range []queue.State{queue.Delayed, queue.Leased, queue.Running, queue.Exhausted} {
			for _, r := range m.of(name, s) {
				want = append(want, r.RunID)
				if s == queue.Exhausted {
					exhausted = append(exhausted, r.RunID)
				}
			}
		}
		for token, more := []byte(nil), true; more; more = len(token) > 0 {
			page, next, err := queue.ListRuns(b.Store, name, m.stamp, nil, token, 3)
			if err != nil {
				b.t.Fatal(err)
			}
			for _, r := range page {
				got = append(got, r.RunID)
			}
			token = next
		}
		if !slices.Equal(got, want) {
			b.t.Fatalf("runs of %s: %q, want %q", name, got, want)
		}
	}
	list, err := queue.ListExhausted(b.Store, 2, 1000)
	ids := []string{}
	for _, r := range list {
		ids = append(ids, r.RunID)
	}
	slices.Sort(exhausted)
	if slices.Sort(ids); err != nil || !slices.Equal(ids, exhausted) {
		b.t.Fatalf("exhausted %q, %v; want %q", ids, err, exhausted)
	}
	unsettled := []string{}
	for id, r := range m.runs {
		if r.Unsettled {
			unsettled = append(unsettled, id)
		}
	}
	slices.Sort(unsettled)
	ids, err = queue.ListUnsettled(b.Store, "run-1", 1000)
	if slices.Sort(ids); err != nil || !slices.Equal(ids, unsettled) {
		b.t.Fatalf("unsettled %q, %v; want %q", ids, err, unsettled)
	}
}

// checkTables derives every index from the rows of runs and queues, and compares.
func (b *bed) checkTables() {
	b.t.Helper()
	rows := b.tables()
	want := map[string]string{}
	u64 := func(n uint64) string { return string(binary.BigEndian.AppendUint64(nil, n)) }
	nextTimer := int64(0)
	queues := map[string]uint64{} // of tenants
	for key, value := range rows {
		switch key[0] {
		case 'P', 'I', 'Y':
			want[key] = value
		case 'Q':
			want[key] = value
			var q recordv1.Queue
			b.decode(value, &q)
			name := queue.Name{Tenant: q.Name.TenantId, Project: q.Name.ProjectId, Environment: q.Name.EnvironmentId, Queue: q.Name.Queue}
			text := fmt.Sprintf("%s\x00%s\x00%s\x00%s\x00", name.Tenant, name.Project, name.Environment, name.Queue)
			want["N"+text] = u64(q.Number)
			queues[name.Tenant]++
			want["F"+name.Tenant] = u64(queues[name.Tenant])
			if b.model.canLease(name) {
				want["G"+text] = u64(q.Number)
			}
		case 'R':
			want[key] = value
			var r recordv1.QueuedRun
			b.decode(value, &r)
			rank, due := 0, int64(0)
			switch queue.State(r.State) {
			case queue.Ready:
				rank = 9 - int(r.Priority)
			case queue.Delayed:
				due = r.NotBefore
			case queue.Leased, queue.Running:
				due = r.ExpiresAt
			case queue.Exhausted:
				want["H"+u64(r.Order)] = r.RunId
			}
			if r.Unsettled {
				want["Yu"+r.RunId] = "\x01"
			}
			want["O"+u64(r.Queue)+string([]byte{byte(r.State), byte(rank)})+u64(r.Order)] = u64(uint64(r.EnqueuedAt)) + r.RunId
			if due != 0 {
				want["E"+u64(uint64(due))+u64(r.Order)] = r.RunId
				if nextTimer == 0 || due < nextTimer {
					nextTimer = due
				}
			}
		}
	}
	if !maps.Equal(rows, want) {
		for key, value := range want {
			if rows[key] != value {
				b.t.Errorf("row %q is %q, want %q", key, rows[key], value)
			}
		}
		for key := range rows {
			if _, ok := want[key]; !ok {
				b.t.Errorf("row %q is too much", key)
			}
		}
		b.t.FailNow()
	}
	due, ok, err := queue.NextTimer(b.Store)
	if err != nil || ok != (nextTimer != 0) || due != nextTimer {
		b.t.Fatalf("next timer %d, %t, %v; want %d", due, ok, err, nextTimer)
	}
}

func (b *bed) decode(row string, m proto.Message) {
	b.t.Helper()
	if err := proto.Unmarshal([]byte(row), m); err != nil {
		b.t.Fatal(err)
	}
}

// tables returns all rows of the machine.
func (b *bed) tables() map[string]string {
	b.t.Helper()
	rows, err := storagetest.RowsOf(b.Store, queue.Machine{})
	if err != nil {
		b.t.Fatal(err)
	}
	return rows
}

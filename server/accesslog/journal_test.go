package accesslog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/raft"
	"runlog/server/auth"
	"runlog/server/rpc"
	"runlog/storage"
)

// replicated is the replicated log, as far as an access log knows it: it keeps the first event of
// each key.
type replicated struct {
	refuses error
	tries   int
	keys    map[string]bool
	methods []string // late ones have a star
}

func (r *replicated) append(_ context.Context, req *runlogv1.AppendEventsRequest) error {
	r.tries++
	if r.refuses != nil {
		return r.refuses
	}
	e := req.Events[0]
	var d struct {
		Method   string
		Late     bool
		CalledAt time.Time
	}
	if err := json.Unmarshal(e.GetPayloadJson(), &d); err != nil || d.Late && !d.CalledAt.Equal(e.EmittedAt.AsTime()) {
		return fmt.Errorf("payload %s, emitted at %v: %w", e.GetPayloadJson(), e.EmittedAt.AsTime(), err)
	}
	if key := req.RunId + e.StepId; !r.keys[key] {
		if r.keys == nil {
			r.keys = map[string]bool{}
		}
		r.keys[key] = true
		if d.Late {
			d.Method += "*"
		}
		r.methods = append(r.methods, d.Method)
	}
	return nil
}

func emergency(i int) rpc.Call { return rpc.Call{Method: fmt.Sprint("m", i), Emergency: true} }

func methods(from, to int) (list []string) {
	for i := from; i < to; i++ {
		list = append(list, fmt.Sprintf("m%d*", i))
	}
	return list
}

// deliverAll delivers what a journal has, until nothing more happens.
func deliverAll(t *testing.T, l *Log) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { l.Run(ctx); close(done) }()
	synctest.Wait()
	cancel()
	<-done
}

// TestJournalCrashSEC13: whatever a crash leaves of unsynced writes, each call that was answered is
// appended once, in order and marked as late, also if the node crashes after it has appended some
// of them, or all but the removal of the file.
func TestJournalCrashSEC13(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(20) {
			rng := rand.New(rand.NewPCG(seed, 0))
			disk, all := vfs.NewCrashableMem(), &replicated{refuses: raft.ErrNotLeader}
			crash := func() { disk = disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: int(seed%3) * 50, RNG: rng}) }
			l := openLog(t, disk, all.append)
			for i := range 10 {
				if i == 5 {
					crash()
					l = openLog(t, disk, all.append)
				}
				if err := l.Allowed(t.Context(), emergency(i)); err != nil {
					t.Fatal(err)
				}
			}
			crash()
			all.refuses = nil
			l = openLog(t, disk, func(ctx context.Context, req *runlogv1.AppendEventsRequest) error {
				if len(all.methods) == int(seed%11) {
					return raft.ErrNotLeader
				}
				return all.append(ctx, req)
			})
			deliverAll(t, l)
			before := disk
			crash()
			deliverAll(t, openLog(t, disk, all.append))
			disk = before // The file is still there.
			deliverAll(t, openLog(t, disk, all.append))
			if want := methods(0, 10); !slices.Equal(all.methods, want) {
				t.Errorf("seed %d: appended %q", seed, all.methods)
			}
			if names, _ := disk.List(""); slices.Contains(names, "access.late") {
				t.Errorf("seed %d: the file is still there", seed)
			}
		}
	})
}

// TestJournalOrderSEC13: while the journal has a call, the next follow there. Afterwards calls are
// appended directly again, without a mark.
func TestJournalOrderSEC13(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := &replicated{refuses: rpc.Status(&contract.Error{Reason: contract.ReasonDiskLow, Message: "full"})}
		l := openLog(t, vfs.NewMem(), all.append)
		for i := range 3 {
			if err := l.Allowed(t.Context(), emergency(i)); err != nil {
				t.Fatal(err)
			}
			all.refuses, all.tries = nil, 0
		}
		if all.tries > 0 {
			t.Errorf("%d calls overtook", all.tries)
		}
		l.Denied(t.Context(), rpc.Call{Identity: auth.Local, Method: "m3"}, "PERMISSION_DENIED", status.Error(codes.PermissionDenied, "no"))
		deliverAll(t, l)
		if err := l.Allowed(t.Context(), emergency(4)); err != nil {
			t.Fatal(err)
		}
		if want := append(methods(0, 4), "m4"); !slices.Equal(all.methods, want) {
			t.Errorf("appended %q", all.methods)
		}
	})
}

// TestJournalUnknownSEC13: a call whose direct event may be stored or not is in the log once.
func TestJournalUnknownSEC13(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all, stored := &replicated{}, 0
		l := openLog(t, vfs.NewMem(), func(ctx context.Context, req *runlogv1.AppendEventsRequest) error {
			if err := all.append(ctx, req); err != nil || stored > 0 {
				return err
			}
			stored++
			<-ctx.Done()
			return ctx.Err()
		})
		began := time.Now()
		if err := l.Allowed(t.Context(), emergency(0)); err != nil || time.Since(began) != ownAfter {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		deliverAll(t, l)
		if !slices.Equal(all.methods, []string{"m0"}) {
			t.Errorf("appended %q", all.methods)
		}
	})
}

// TestJournalFullSEC13: the file is bounded. Refused calls leave half of it to administrators,
// whose calls are refused when it is full, with the cause and the remedy.
func TestJournalFullSEC13(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		disk, all := vfs.NewMem(), &replicated{refuses: raft.ErrNotLeader}
		l := openLog(t, disk, all.append)
		size := func() int64 {
			info, err := disk.Stat("access.late")
			if err != nil {
				t.Fatal(err)
			}
			return info.Size()
		}
		long := rpc.RecordedField{Name: "pad", Text: strings.Repeat("<", maxRequest)} // 48 KiB
		for range 2 * deniedBurst {
			l.Denied(t.Context(), rpc.Call{Identity: auth.Local, Method: "refused", Request: []rpc.RecordedField{long}}, "PERMISSION_DENIED", status.Error(codes.PermissionDenied, "no"))
		}
		if got := size(); got > maxDeniedJournal || got < maxDeniedJournal*9/10 {
			t.Errorf("refused calls take %d bytes", got)
		}
		var err error
		answered := 0
		for ; err == nil; answered++ {
			err = l.Allowed(t.Context(), rpc.Call{Method: "/s/M", Request: []rpc.RecordedField{long}, Emergency: true})
		}
		if got := size(); answered < 30 || got > maxJournal {
			t.Errorf("%d calls were made, the file has %d bytes", answered, got)
		}
		if text := err.Error(); status.Code(rpc.Status(err)) != codes.Unavailable || !strings.Contains(text, "own access log has its maximum of 4 MiB") {
			t.Errorf("a call that is not recorded: %v", err)
		}
		all.refuses = nil
		deliverAll(t, l)
		if err := l.Allowed(t.Context(), emergency(1)); err != nil {
			t.Errorf("after it was emptied: %v", err)
		}
	})
}

// TestJournalDamageSEC13: a torn last line, a damaged line and the lines of another cluster, from
// which the directory was copied, are left out. The next lines are read.
func TestJournalDamageSEC13(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		disk, all := vfs.NewMem(), &replicated{refuses: raft.ErrNotLeader}
		l := openLog(t, disk, all.append)
		for i := range 4 {
			if l.journal.cluster = "c1"; i == 1 {
				l.journal.cluster = "c2"
			}
			if err := l.Allowed(t.Context(), emergency(i)); err != nil {
				t.Fatal(err)
			}
		}
		text, err := storage.ReadFile(disk, "access.late", maxJournal)
		if err != nil {
			t.Fatal(err)
		}
		damaged := strings.Replace(string(text[:len(text)-7]), `"m2"`, `"mX"`, 1)
		if err := storage.ReplaceFile(disk, "access.late", []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		for i := 4; i < 6; i++ { // by two processes
			if err := openLog(t, disk, all.append).Allowed(t.Context(), emergency(i)); err != nil {
				t.Fatal(err)
			}
		}
		all.refuses = nil
		deliverAll(t, openLog(t, disk, all.append))
		if want := []string{"m0*", "m4*", "m5*"}; !slices.Equal(all.methods, want) {
			t.Errorf("appended %q", all.methods)
		}
	})
}

// TestJournalWriteFailsSEC13: a call that can be recorded nowhere is not made, and what the failed
// write left in the file harms no other.
func TestJournalWriteFailsSEC13(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		for _, kind := range []errorfs.OpKind{errorfs.OpFileSync, errorfs.OpFileWriteAt} {
			fails := false
			mem, all := vfs.NewMem(), &replicated{refuses: raft.ErrNotLeader}
			disk := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if fails && op.Kind == kind {
					return broken
				}
				return nil
			}))
			l := openLog(t, disk, all.append)
			for i := range 3 {
				fails = i == 1
				if err := l.Allowed(t.Context(), emergency(i)); (err != nil) != fails || fails && !strings.Contains(err.Error(), "broken") {
					t.Errorf("%v, call %d: %v", kind, i, err)
				}
			}
			all.refuses = nil
			deliverAll(t, openLog(t, mem, all.append))
			if want := []string{"m0*", "m2*"}; !slices.Equal(all.methods, want) {
				t.Errorf("%v: appended %q", kind, all.methods)
			}
		}
	})
}

package writer

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"runlog/client"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// deniedLog is a log that refuses the credentials until it is open.
type deniedLog struct {
	*logFake
	open atomic.Bool
}

func (l *deniedLog) AppendRequest(ctx context.Context, req *runlogv1.AppendEventsRequest) (client.Result, error) {
	if !l.open.Load() {
		return client.Result{}, &client.Error{Code: codes.Unauthenticated, Reason: client.ReasonUnauthenticated, Message: "who are you"}
	}
	return l.logFake.AppendRequest(ctx, req)
}

// TestUnreadableRecord: a record that was damaged in the open outbox holds up nothing: those of
// other runs are sent, also after a failure of the log, its own run goes on, and the logger knows.
func TestUnreadableRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox")
	synctest.Test(t, func(t *testing.T) {
		log := &deniedLog{logFake: newLog(true)}
		var said bytes.Buffer
		w, end := open(t, path, log, Options{Logger: slog.New(slog.NewTextHandler(&said, nil))})
		for _, key := range []string{"damaged", "well"} {
			if res, err := w.Write(t.Context(), event("run-"+key, contract.StepStarted, key)); err != nil || !res.Parked {
				t.Fatalf("%v, %v", res, err)
			}
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte("D"), int64(bytes.LastIndex(text, []byte("damaged")))); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		log.open.Store(true)
		time.Sleep(time.Minute)
		if got := log.of("run-well"); !slices.Equal(got, []string{"well"}) {
			t.Errorf("stored %v a minute after the log takes the credentials", got)
		}
		if _, err := w.Write(t.Context(), event("run-damaged", contract.StepCompleted, "later")); err != nil {
			t.Errorf("the run of the damaged record: %v", err)
		}
		end()
		if !strings.Contains(said.String(), "cannot be read") {
			t.Errorf("the log says\n%s", said.String())
		}
	})
}

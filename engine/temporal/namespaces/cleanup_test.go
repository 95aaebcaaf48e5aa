package namespaces_test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	sdkclient "go.temporal.io/sdk/client"
	"google.golang.org/protobuf/types/known/durationpb"

	"runlog/engine/temporal/namespaces"
	"runlog/engine/temporal/temporaltest"
	"runlog/testbed/await"
)

// TestCleanENG4: an ephemeral namespace is deleted after it was idle for seven days, with its
// histories in an archive. One with a workflow that runs, and one of another name, stay.
func TestCleanENG4(t *testing.T) {
	s := temporaltest.Start(t)
	c := s.Client(t, "default")
	for _, name := range []string{"pr-idle", "pr-busy", "prod"} {
		if _, err := c.WorkflowService().RegisterNamespace(t.Context(), &workflowservice.RegisterNamespaceRequest{
			Namespace: name, WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour)}); err != nil {
			t.Fatal(err)
		}
	}
	start := func(namespace string) sdkclient.Client {
		t.Helper()
		in := s.Client(t, namespace)
		// Temporal learns of a namespace late.
		await.Poll(t, "a start in the namespace "+namespace, func() bool {
			_, err := in.ExecuteWorkflow(t.Context(), sdkclient.StartWorkflowOptions{ID: "w/1", TaskQueue: "none"}, "nothing")
			return err == nil
		})
		return in
	}
	idle := start("pr-idle")
	start("pr-busy")
	start("prod")
	if err := idle.TerminateWorkflow(t.Context(), "w/1", "", "a test"); err != nil {
		t.Fatal(err)
	}
	now, dir := time.Now(), t.TempDir()
	cleaner := &namespaces.Cleaner{Client: c, Prefix: "pr-", Dir: dir, Now: func() time.Time { return now }}
	clean := func(after time.Duration) []namespaces.Cleaned {
		t.Helper()
		now = now.Add(after)
		list, err := cleaner.Clean(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	// So does its search of what has ended.
	await.Poll(t, "the terminated workflow in Temporal's search", func() bool {
		res, err := idle.CountWorkflow(t.Context(), &workflowservice.CountWorkflowExecutionsRequest{Query: "ExecutionStatus = 'Terminated'"})
		return err == nil && res.GetCount() == 1
	})
	for _, after := range []time.Duration{0, 8 * 24 * time.Hour, 6 * 24 * time.Hour} {
		if list := clean(after); len(list) > 0 {
			t.Fatalf("after %v: got %+v", after, list)
		}
	}
	list := clean(2 * 24 * time.Hour)
	if len(list) != 1 || list[0].Namespace != "pr-idle" || list[0].Workflows != 1 {
		t.Fatalf("got %+v", list)
	}
	f, err := os.Open(list[0].Archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	r := tar.NewReader(z)
	header, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil || !strings.HasPrefix(header.Name, "w%2F1/") || !strings.Contains(string(text), "EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED") {
		t.Errorf("got %s, %v: %.300s", header.Name, err, text)
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
	if list := clean(24 * time.Hour); len(list) > 0 {
		t.Errorf("got %+v", list)
	}
	if _, err := c.WorkflowService().DescribeNamespace(t.Context(), &workflowservice.DescribeNamespaceRequest{Namespace: "pr-busy"}); err != nil {
		t.Error(err)
	}
}

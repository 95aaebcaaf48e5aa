// Package namespaces archives and deletes ephemeral namespaces of Temporal (ENG-4).
package namespaces

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enums "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	namespacepb "go.temporal.io/api/namespace/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"
	sdkclient "go.temporal.io/sdk/client"
	"google.golang.org/protobuf/encoding/protojson"
)

// DefaultIdle is how long an ephemeral namespace is kept without an active workflow or a start.
const DefaultIdle = 7 * 24 * time.Hour

// idleSince is the name under which a namespace says since when it is seen idle. Temporal does not
// say when a namespace was made.
const idleSince = "runlog-idle-since"

// Cleaner archives and deletes ephemeral namespaces (ENG-4).
type Cleaner struct {
	Client sdkclient.Client
	// Prefix begins the names of ephemeral namespaces, such as pr-. It is required.
	Prefix string
	// Dir gets an archive of the histories of each namespace before it is deleted.
	Dir string
	// Idle is how long a namespace is kept. 0: DefaultIdle.
	Idle time.Duration
	// Now is the time of the sweep. nil: time.Now.
	Now func() time.Time
	// Logger gets what is deleted. nil: none.
	Logger *slog.Logger
}

// Cleaned is a namespace that was deleted, with the file of its histories.
type Cleaned struct {
	Namespace, Archive string
	Workflows          int
}

// Clean looks at each ephemeral namespace once. It deletes those that were idle for so long, after
// their histories are on stable storage.
func (c *Cleaner) Clean(ctx context.Context) (list []Cleaned, err error) {
	if c.Prefix == "" || c.Dir == "" {
		return nil, errors.New("namespaces: Prefix or Dir is empty: name the ephemeral namespaces, and a directory for archives")
	}
	var faults []error
	var names []string
	req := &workflowservice.ListNamespacesRequest{PageSize: 100}
	for {
		res, err := c.Client.WorkflowService().ListNamespaces(ctx, req)
		if err != nil {
			return nil, fmt.Errorf("namespaces: cannot list the namespaces: %w", err)
		}
		for _, n := range res.GetNamespaces() {
			if info := n.GetNamespaceInfo(); strings.HasPrefix(info.GetName(), c.Prefix) && info.GetState() == enums.NAMESPACE_STATE_REGISTERED {
				names = append(names, info.GetName())
			}
		}
		if req.NextPageToken = res.GetNextPageToken(); len(req.NextPageToken) == 0 {
			break
		}
	}
	slices.Sort(names)
	for _, name := range names {
		cleaned, err := c.one(ctx, name)
		if err != nil {
			faults = append(faults, fmt.Errorf("namespaces: namespace %q: %w", name, err))
		}
		if cleaned != nil {
			list = append(list, *cleaned)
		}
	}
	return list, errors.Join(faults...)
}

func (c *Cleaner) one(ctx context.Context, name string) (*Cleaned, error) {
	idle, now := c.Idle, time.Now()
	if idle == 0 {
		idle = DefaultIdle
	}
	if c.Now != nil {
		now = c.Now()
	}
	described, err := c.Client.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: name})
	if err != nil {
		return nil, err
	}
	since, err := time.Parse(time.RFC3339, described.GetNamespaceInfo().GetData()[idleSince])
	known := err == nil
	active, err := c.active(ctx, name, now.Add(-idle))
	switch {
	case err != nil:
		return nil, err
	case active && known:
		return nil, c.mark(ctx, name, "")
	case active:
		return nil, nil
	case !known:
		return nil, c.mark(ctx, name, now.UTC().Format(time.RFC3339))
	case now.Sub(since) < idle:
		return nil, nil
	}
	cleaned, err := c.archive(ctx, name, now)
	if err != nil {
		return nil, err
	}
	if active, err = c.active(ctx, name, now.Add(-idle)); err != nil || active {
		return nil, err // A workflow has started meanwhile.
	}
	if _, err := c.Client.OperatorService().DeleteNamespace(ctx, &operatorservice.DeleteNamespaceRequest{Namespace: name}); err != nil {
		return nil, err
	}
	if c.Logger != nil {
		c.Logger.InfoContext(ctx, "namespace is deleted", "namespace", name, "archive", cleaned.Archive, "workflows", cleaned.Workflows)
	}
	return cleaned, nil
}

// active reports whether a workflow runs, or has started since.
func (c *Cleaner) active(ctx context.Context, name string, since time.Time) (bool, error) {
	res, err := c.Client.WorkflowService().CountWorkflowExecutions(ctx, &workflowservice.CountWorkflowExecutionsRequest{Namespace: name,
		Query: fmt.Sprintf("ExecutionStatus = 'Running' OR StartTime > '%s'", since.UTC().Format(time.RFC3339Nano))})
	return res.GetCount() > 0, err
}

// mark notes since when a namespace is idle; empty: it is not.
func (c *Cleaner) mark(ctx context.Context, name, since string) error {
	_, err := c.Client.WorkflowService().UpdateNamespace(ctx, &workflowservice.UpdateNamespaceRequest{Namespace: name,
		UpdateInfo: &namespacepb.UpdateNamespaceInfo{Data: map[string]string{idleSince: since}}})
	return err
}

// archive writes the histories of a namespace into a file of its own.
func (c *Cleaner) archive(ctx context.Context, name string, now time.Time) (cleaned *Cleaned, err error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, err
	}
	cleaned = &Cleaned{Namespace: name, Archive: filepath.Join(c.Dir, url.PathEscape(name)+"-"+now.UTC().Format("20060102T150405Z")+".tar.gz")}
	f, err := os.CreateTemp(c.Dir, ".archive-*")
	if err != nil {
		return nil, err
	}
	defer func() {
		_ = f.Close()
		_ = os.Remove(f.Name()) // It is renamed, unless there was an error.
	}()
	z := gzip.NewWriter(f)
	t := tar.NewWriter(z)
	req := &workflowservice.ListWorkflowExecutionsRequest{Namespace: name, PageSize: 100}
	for {
		res, err := c.Client.WorkflowService().ListWorkflowExecutions(ctx, req)
		if err != nil {
			return nil, err
		}
		for _, x := range res.GetExecutions() {
			history, err := History(ctx, c.Client, name, x.GetExecution().GetWorkflowId(), x.GetExecution().GetRunId())
			if err != nil {
				return nil, err
			}
			path := url.PathEscape(x.GetExecution().GetWorkflowId()) + "/" + url.PathEscape(x.GetExecution().GetRunId()) + ".json"
			if err := t.WriteHeader(&tar.Header{Name: path, Mode: 0o600, Size: int64(len(history)), ModTime: now}); err != nil {
				return nil, err
			}
			if _, err := t.Write(history); err != nil {
				return nil, err
			}
			cleaned.Workflows++
		}
		if req.NextPageToken = res.GetNextPageToken(); len(req.NextPageToken) == 0 {
			break
		}
	}
	if err := errors.Join(t.Close(), z.Close(), f.Sync(), f.Close()); err != nil {
		return nil, err
	}
	if err := os.Rename(f.Name(), cleaned.Archive); err != nil {
		return nil, err
	}
	return cleaned, syncDir(c.Dir)
}

// syncDir makes a rename durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// History returns the history of a workflow as JSON, which replay tests read.
func History(ctx context.Context, c sdkclient.Client, namespace, workflowID, runID string) ([]byte, error) {
	req := &workflowservice.GetWorkflowExecutionHistoryRequest{Namespace: namespace,
		Execution: &commonpb.WorkflowExecution{WorkflowId: workflowID, RunId: runID}}
	var all historypb.History
	for {
		res, err := c.WorkflowService().GetWorkflowExecutionHistory(ctx, req)
		if err != nil {
			return nil, err
		}
		all.Events = append(all.Events, res.GetHistory().GetEvents()...)
		if req.NextPageToken = res.GetNextPageToken(); len(req.NextPageToken) == 0 {
			break
		}
	}
	return protojson.MarshalOptions{Indent: " "}.Marshal(&all)
}

package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// MaxWait is the longest time that Conductor lets a poll wait.
const MaxWait = 5 * time.Second

// Start makes a workflow, and returns its id. It is tried once: after an error without a status,
// and after one of 5xx, the workflow may be there.
func (c *Client) Start(ctx context.Context, req StartRequest) (id string, err error) {
	r := call{op: fmt.Sprintf("start a workflow for %q", req.CorrelationID), method: http.MethodPost, path: "/api/workflow", body: req, once: true}
	answer, err := c.do(ctx, r)
	if err != nil {
		return "", err
	}
	// Conductor answers with plain text. Some proxies make a JSON string of it.
	id = strings.Trim(strings.TrimSpace(string(answer)), `"`)
	if id == "" || len(id) > 256 || strings.ContainsAny(id, " \n<>{}/?#%") {
		return "", &Error{Op: r.op, Status: http.StatusBadGateway, Message: "the answer is no id of a workflow: " + c.clean(string(answer))}
	}
	return id, nil
}

// Workflow returns a workflow, with its tasks if they are asked for.
func (c *Client) Workflow(ctx context.Context, id string, tasks bool) (*Workflow, error) {
	r := call{op: "read workflow " + id, method: http.MethodGet, path: "/api/workflow/" + url.PathEscape(id),
		query: url.Values{"includeTasks": {strconv.FormatBool(tasks)}}}
	return read[*Workflow](ctx, c, r)
}

// Correlated returns the workflows with a name and a correlation id, those that have ended too, and
// without their tasks. Conductor may search in an index that lags behind, and its databases skip
// workflows that are locked: a workflow that is not found may still be there.
func (c *Client) Correlated(ctx context.Context, name, correlationID string) ([]Workflow, error) {
	// The id is in the body: servers refuse a path with an encoded slash.
	r := call{op: fmt.Sprintf("search for the workflows of %q", correlationID), method: http.MethodPost,
		path: "/api/workflow/" + url.PathEscape(name) + "/correlated", query: url.Values{"includeClosed": {"true"}}, body: []string{correlationID}}
	found, err := read[map[string][]Workflow](ctx, c, r)
	return found[correlationID], err
}

// Pause stops the decider of a workflow. A workflow that is paused stays so. 409: it has ended.
func (c *Client) Pause(ctx context.Context, id string) error {
	_, err := c.do(ctx, call{op: "pause workflow " + id, method: http.MethodPut, path: "/api/workflow/" + url.PathEscape(id) + "/pause"})
	return err
}

// Resume ends a pause. 500: the workflow is not paused, perhaps by an earlier try.
func (c *Client) Resume(ctx context.Context, id string) error {
	_, err := c.do(ctx, call{op: "resume workflow " + id, method: http.MethodPut, path: "/api/workflow/" + url.PathEscape(id) + "/resume"})
	return err
}

// Terminate ends a workflow, and cancels its tasks. One that is terminated stays so. 409: it is
// completed.
func (c *Client) Terminate(ctx context.Context, id, reason string) error {
	_, err := c.do(ctx, call{op: "terminate workflow " + id, method: http.MethodDelete, path: "/api/workflow/" + url.PathEscape(id),
		query: url.Values{"reason": {reason}}})
	return err
}

// Poll takes tasks of a type out of their queue, at most count, and waits for the first one, at
// most MaxWait. A task whose answer is lost comes back after its response timeout.
func (c *Client) Poll(ctx context.Context, taskType, worker string, count int, wait time.Duration) ([]Task, error) {
	r := call{op: "poll tasks of type " + taskType, method: http.MethodGet, path: "/api/tasks/poll/batch/" + url.PathEscape(taskType),
		query: url.Values{"workerid": {worker}, "count": {strconv.Itoa(count)},
			"timeout": {strconv.FormatInt(min(wait, MaxWait).Milliseconds(), 10)}}}
	return read[[]Task](ctx, c, r)
}

// Task returns a task.
func (c *Client) Task(ctx context.Context, id string) (*Task, error) {
	return read[*Task](ctx, c, call{op: "read task " + id, method: http.MethodGet, path: "/api/tasks/" + url.PathEscape(id)})
}

// Update tells what has become of a task. An update of a task that has ended is ignored without an
// error.
func (c *Client) Update(ctx context.Context, result TaskResult) error {
	_, err := c.do(ctx, call{op: "update task " + result.TaskID, method: http.MethodPost, path: "/api/tasks", body: result})
	return err
}

// Health returns an error unless Conductor says that it is healthy.
func (c *Client) Health(ctx context.Context) error {
	r := call{op: "ask for the health of Conductor", method: http.MethodGet, path: "/health"}
	health, err := read[struct {
		Healthy bool `json:"healthy"`
	}](ctx, c, r)
	if err == nil && !health.Healthy {
		err = &Error{Op: r.op, Status: http.StatusServiceUnavailable, Message: "Conductor is not healthy"}
	}
	return err
}

// read makes a call, and decodes its answer.
func read[T any](ctx context.Context, c *Client, r call) (value T, err error) {
	answer, err := c.do(ctx, r)
	if err != nil {
		return value, err
	}
	if err := json.Unmarshal(answer, &value); err != nil {
		return value, &Error{Op: r.op, Status: http.StatusBadGateway, Message: "the answer is not the JSON of Conductor: " + c.clean(err.Error())}
	}
	return value, nil
}

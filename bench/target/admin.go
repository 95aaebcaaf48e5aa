package target

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"runlog/bench/report"
)

// Operator is a Target with an admin listener (watch, lag, rebuild).
type Operator interface {
	Metrics(ctx context.Context) (Metrics, error)
	// Memory of the process, after a collection.
	Memory(ctx context.Context) (report.Memory, error)
	// RebuildProjection folds the log again and serves the result. told is called with the
	// progress, in order, and at the end.
	RebuildProjection(ctx context.Context, told func(RebuildState)) error
}

// Metrics are the samples of a process, by name and labels as Prometheus writes them.
type Metrics map[string]float64

// Names of metrics of a node.
const (
	metricBehind   = "runlog_projector_behind_entries"
	MetricLag      = "runlog_projector_lag_seconds"
	MetricWatchers = "runlog_projector_subscriptions"

	metricHeap     = "go_memstats_heap_alloc_bytes"
	metricStacks   = "go_memstats_stack_inuse_bytes"
	metricResident = "process_resident_memory_bytes"
)

// collections is the number of garbage collections before memory is read: each halves a stack with
// spare room.
const collections = 3

// RebuildState is a line of a rebuild's progress.
type RebuildState struct {
	Phase     string `json:"phase"`
	Compared  int    `json:"compared"`
	Differing int    `json:"differing"`
	Error     string `json:"error"`
}

// The phases of a rebuild that the bench distinguishes.
const (
	RebuildFolds = "fold"
	RebuildDone  = "done"
)

// Admin is the admin listener of a node.
type Admin struct{ address string }

func (a *Admin) request(ctx context.Context, method, path string) (io.ReadCloser, error) {
	return request(ctx, method, a.address, path)
}

// request returns the body of an answer that is well.
func request(ctx context.Context, method, address, path string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("bench: %s %s answered %s", method, path, res.Status), res.Body.Close())
	}
	return res.Body, nil
}

// Metrics asks for all of them.
func (a *Admin) Metrics(ctx context.Context) (_ Metrics, err error) {
	body, err := a.request(ctx, http.MethodGet, "/metrics")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	return parseMetrics(body)
}

// parseMetrics reads Prometheus's text format, version 0.0.4, as nodes write it: without
// timestamps.
func parseMetrics(text io.Reader) (Metrics, error) {
	m := make(Metrics)
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		line := lines.Text()
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || line[0] == '#' {
			continue
		}
		v, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("bench: metric %q: %w", line, err)
		}
		m[line[:at]] = v
	}
	return m, lines.Err()
}

// Memory collects, and asks.
func (a *Admin) Memory(ctx context.Context) (report.Memory, error) {
	for range collections {
		body, err := a.request(ctx, http.MethodGet, "/debug/pprof/heap?gc=1")
		if err != nil {
			return report.Memory{}, err
		}
		_, err = io.Copy(io.Discard, body)
		if err = errors.Join(err, body.Close()); err != nil {
			return report.Memory{}, err
		}
	}
	m, err := a.Metrics(ctx)
	return report.Memory{LiveBytes: m[metricHeap] + m[metricStacks], ResidentBytes: m[metricResident]}, err
}

// RebuildProjection asks for a rebuild and follows it.
func (a *Admin) RebuildProjection(ctx context.Context, told func(RebuildState)) (err error) {
	body, err := a.request(ctx, http.MethodPost, "/projection/rebuild")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	var last RebuildState
	for lines := json.NewDecoder(body); ; {
		var line RebuildState
		if err := lines.Decode(&line); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		last = line
		told(last)
	}
	if last.Phase != RebuildDone {
		return fmt.Errorf("bench: the rebuild ended in phase %q: %s", last.Phase, last.Error)
	}
	return nil
}

// ready asks whether the node is.
func (a *Admin) ready(ctx context.Context) error {
	body, err := a.request(ctx, http.MethodGet, "/readyz")
	if err != nil {
		return err
	}
	return body.Close()
}

package conductortest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxBody bounds a request.
const maxBody = 16 << 20

// answer is what a request gets: JSON, or plain text, or with neither an empty body.
type answer struct {
	status int
	text   string
	json   any
}

var empty = answer{status: http.StatusOK}

func text(s string) answer { return answer{status: http.StatusOK, text: s} }

func object(v any) answer { return answer{status: http.StatusOK, json: v} }

// problem is an ErrorResponse of Conductor.
func problem(status int, format string, args ...any) answer {
	return answer{status: status, json: map[string]any{
		"status": status, "message": fmt.Sprintf(format, args...), "instance": "conductortest", "retryable": false}}
}

// invalid is the answer to a request that breaks constraints.
func invalid(faults ...string) answer {
	list := []map[string]string{}
	for _, f := range faults {
		path, message, _ := strings.Cut(f, ": ")
		list = append(list, map[string]string{"path": path, "message": message})
	}
	return answer{status: http.StatusBadRequest, json: map[string]any{"status": http.StatusBadRequest, "instance": "conductortest",
		"message": "Validation failed, check below errors for detail.", "retryable": false, "validationErrors": list}}
}

func (a answer) write(w http.ResponseWriter) {
	switch {
	case a.json != nil:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(a.status)
		_ = json.NewEncoder(w).Encode(a.json) // the client may be gone
	case a.text != "":
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(a.status)
		_, _ = io.WriteString(w, a.text)
	default:
		w.WriteHeader(a.status)
	}
}

// action answers a request. It is called with the mutex held.
type action func(r *http.Request, body []byte) answer

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	route := func(pattern string, op Op, do action) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			s.serve(w, r, op, func(r *http.Request, body []byte) answer {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.sweep()
				return do(r, body)
			})
		})
	}
	health := func(*http.Request, []byte) answer {
		return object(map[string]any{"healthResults": []any{}, "suppressedHealthResults": []any{}, "healthy": true})
	}
	route("GET /health", OpHealth, health)
	route("GET /api/health", OpHealth, health)
	route("POST /api/metadata/taskdefs", OpDefine, s.defineTasks)
	route("PUT /api/metadata/taskdefs", OpDefine, s.defineTask)
	route("GET /api/metadata/taskdefs/{type}", OpDefine, s.taskDef)
	route("POST /api/metadata/workflow", OpDefine, s.defineWorkflow)
	route("PUT /api/metadata/workflow", OpDefine, s.defineWorkflows)
	route("GET /api/metadata/workflow/{name}", OpDefine, s.workflowDef)

	route("POST /api/workflow", OpStart, s.start)
	route("POST /api/workflow/{name}", OpStart, s.startByName)
	route("GET /api/workflow/{name}/correlated/{correlationID}", OpCorrelated, s.correlated)
	route("POST /api/workflow/{name}/correlated", OpCorrelated, s.correlatedAll)
	route("GET /api/workflow/{id}", OpGet, s.with(get))
	route("GET /api/workflow/{id}/status", OpGet, s.with(status))
	route("PUT /api/workflow/{id}/pause", OpPause, s.with(s.pause))
	route("PUT /api/workflow/{id}/resume", OpResume, s.with(s.resume))
	route("DELETE /api/workflow/{id}", OpTerminate, s.with(s.terminate))
	route("POST /api/workflow/{id}/retry", OpRetry, s.with(s.retry))
	route("PUT /api/workflow/{id}/skiptask/{ref}", OpSkip, s.with(s.skip))

	route("POST /api/tasks", OpUpdate, s.update)
	route("GET /api/tasks/{id}", OpTask, s.task)
	route("POST /api/tasks/{id}/log", OpLog, s.log)
	mux.HandleFunc("GET /api/tasks/poll/{type}", func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, OpPoll, s.pollOne) })
	mux.HandleFunc("GET /api/tasks/poll/batch/{type}", func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, OpPoll, s.pollBatch) })
	return mux
}

// serve answers a request, with the fault that is left for it.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, op Op, do action) {
	s.mu.Lock()
	s.calls[op]++
	f := s.take(op, fails, losesAnswer)
	s.mu.Unlock()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	switch {
	case err != nil:
		problem(http.StatusBadRequest, "%v", err).write(w)
		return
	case s.authKey != "" && strings.HasPrefix(r.URL.Path, "/api/") && r.Header.Get("X-Authorization") != s.authKey:
		problem(http.StatusUnauthorized, "Token cannot be null or empty").write(w)
		return
	case f != nil && f.effect == fails:
		problem(http.StatusInternalServerError, "injected fault").write(w)
		return
	}
	a := do(r, body)
	if f != nil {
		panic(http.ErrAbortHandler) // the connection breaks in place of the answer
	}
	a.write(w)
}

// with finds the workflow that a path names.
func (s *Server) with(do func(w *Workflow, r *http.Request, body []byte) answer) action {
	return func(r *http.Request, body []byte) answer {
		id := r.PathValue("id")
		w := s.byID[id]
		if w == nil {
			return problem(http.StatusNotFound, "No such workflow found by id: %s", id)
		}
		return do(w, r, body)
	}
}

// number returns a parameter of a query.
func number(r *http.Request, name string, otherwise int) (int, error) {
	value := r.URL.Query().Get(name)
	if value == "" {
		return otherwise, nil
	}
	return strconv.Atoi(value)
}

func isTrue(r *http.Request, name string, otherwise bool) bool {
	value := r.URL.Query().Get(name)
	if value == "" {
		return otherwise
	}
	return value == "true"
}

func millis(t time.Time) int64 { return t.UnixMilli() }

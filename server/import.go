package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strconv"
	"time"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/storage"
)

// importMediaType is what POST /import takes. A web page cannot send it without asking first.
const importMediaType = "application/x-ndjson"

// importRecords answers POST /import on the admin listener. It stores 1 to 1,000 records of one run
// of another authority, all or none, with the runSeq and the persistedAt that they have: lines of
// JSON as contract.ParseRecord reads them. A run may come in several requests, in the order of its
// records, and a request again. The answer is that of AppendEvents.
func (s *Server) importRecords(w http.ResponseWriter, r *http.Request) {
	answer, err := s.importBody(w, r)
	if err != nil {
		writeError(r.Context(), nil, nil, w, r, statusOf(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = newJSONMarshaler().NewEncoder(w).Encode(answer)
}

func (s *Server) importBody(w http.ResponseWriter, r *http.Request) (*runlogv1.AppendEventsResponse, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != importMediaType {
		return nil, invalid("Content-Type", "must be "+importMediaType+": send one record a line")
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(s.opts.MaxRequestBytes)))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, s.limits().TooLarge()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &contract.Error{Reason: contract.ReasonRequestTimeout,
			Message: fmt.Sprintf("the body did not come within %v; nothing was stored", bodyTimeout)}
	case err != nil:
		return nil, invalid("", "the body could not be read: "+err.Error())
	}
	a, err := s.parseImport(body)
	if err != nil {
		return nil, err
	}
	if !s.node.Leading() {
		return nil, s.notLeader() // the command line asks the leader's own listener
	}
	outcome, results, err := s.append(r.Context(), a)
	if err != nil {
		return nil, err
	}
	for i := range results {
		results[i].PersistedAt = timestamp(a.Imported[i].PersistedAt)
	}
	return &runlogv1.AppendEventsResponse{Results: results, LastSeq: outcome.LastSeq, Position: formatPosition(outcome.Position)}, nil
}

// parseImport reads the lines of a request, and names every fault of them.
func (s *Server) parseImport(body []byte) (*storage.Append, error) {
	var records []contract.Record
	var events []*runlogv1.EventWrite
	var bad []contract.Violation
	for line := range bytes.Lines(body) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if len(records) == contract.MaxEvents {
			return nil, contract.WrongCount(bytes.Count(body, []byte("\n")))
		}
		record, err := contract.ParseRecord(line)
		var own *contract.Error
		if errors.As(err, &own) {
			for _, v := range own.Violations {
				bad = append(bad, inEvent(len(records), v))
			}
		}
		records, events = append(records, record), append(events, record.Event)
	}
	if len(bad) > 0 {
		return nil, contract.NewError(bad)
	}
	if len(records) == 0 {
		return nil, contract.WrongCount(0)
	}
	a := &storage.Append{RunID: records[0].Event.RunId}
	var err error
	if a.Events, err = contract.ValidateAll(events, s.gate(a.RunID)); err != nil {
		return nil, err
	}
	for i := range records {
		a.Imported = append(a.Imported, storage.Assigned{RunSeq: records[i].RunSeq, PersistedAt: records[i].PersistedAt, AppendedBy: records[i].AppendedBy})
		for _, v := range records[i].DigestFaults(&a.Events[i]) {
			bad = append(bad, inEvent(i, v))
		}
	}
	bad = append(bad, inheritPlan(&a.Events[0], &records[0])...)
	if len(bad) > 0 {
		return nil, contract.NewError(bad)
	}
	return a, nil
}

// inheritPlan has an event tell the plan that it has inherited, for a new run of which the record
// that named it is missing. It stays inherited.
func inheritPlan(e *contract.Event, r *contract.Record) (bad []contract.Violation) {
	for _, f := range [...]struct {
		field string
		bit   contract.Absent
		dst   *string
		text  string
	}{
		{"planId", contract.AbsentPlan, &e.PlanID, r.PlanID},
		{"planVersion", contract.AbsentPlanVersion, &e.PlanVersion, r.PlanVersion},
	} {
		if e.Absent&f.bit == 0 || f.text == "" {
			continue
		}
		if fault := contract.NameFault(f.text); fault != "" {
			bad = append(bad, inEvent(0, contract.Violation{Field: f.field, Reason: contract.ReasonInvalidArgumentField, Description: fault}))
			continue
		}
		*f.dst = f.text
	}
	return bad
}

func inEvent(i int, v contract.Violation) contract.Violation {
	path := "events[" + strconv.Itoa(i) + "]"
	if v.Field != "" {
		path += "." + v.Field
	}
	v.Field = path
	return v
}

// importRefused says what of an import does not fit what is stored.
func importRefused(e *storage.ImportError) *contract.Error {
	out := &contract.Error{Reason: contract.ReasonInvalidArgumentField, Message: e.Error(), Metadata: map[string]string{
		"run_id": e.RunID, "index": strconv.Itoa(e.Index), "last_seq": strconv.FormatUint(e.Before.RunSeq, 10),
	}}
	why := ""
	switch {
	case e.Field == "runSeq":
		out.Reason = contract.ReasonSequenceConflict
		why = fmt.Sprintf("is %d, and must be above %d, where the run is: nothing can be put in front of what is stored", e.Given.RunSeq, e.Before.RunSeq)
	case e.Field == "idempotencyKey":
		out.Reason = contract.ReasonRunAlreadyExists
		why = "is that of another event of the run, which is stored or comes before it in the request"
	case e.Given.PersistedAt < e.Before.PersistedAt:
		why = fmt.Sprintf("is before that of the event with runSeq %d", e.Before.RunSeq)
	default:
		why = "is not past"
	}
	out.Violations = []contract.Violation{inEvent(e.Index, contract.Violation{Field: e.Field, Reason: out.Reason, Description: why})}
	return out
}

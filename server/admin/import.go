package admin

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"os"
	"strconv"
	"time"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
	"runlog/server/budget"
	"runlog/server/rpc"
	"runlog/server/rpc/decode"
	"runlog/server/rpc/wire"
	"runlog/storage"
)

// importMediaType is the media type of POST /import. A web page cannot send it without a CORS
// preflight.
const importMediaType = "application/x-ndjson"

// importRecords answers POST /import on the admin listener. It stores 1 to 1,000 records of one run
// from another authority, all or none, with their runSeq. They are stamped now, and original has
// what their authority said (APP-13). The body has lines of JSON as contract.ParseRecord reads
// them. A run may be sent in several requests, in the order of its records, and a request may be
// repeated. The answer is that of AppendEvents.
func (a *Admin) importRecords(w http.ResponseWriter, r *http.Request) {
	answer, err := a.importBody(w, r)
	if err != nil {
		rpc.RecordDeniedPart(r.Context(), r.Method+" "+r.URL.Path, err)
		rpc.WriteError(w, rpc.Status(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = wire.NewJSON().NewEncoder(w).Encode(answer)
}

func (a *Admin) importBody(w http.ResponseWriter, r *http.Request) (*runlogv1.AppendEventsResponse, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != importMediaType {
		return nil, rpc.Invalid("Content-Type", "must be "+importMediaType+": send one record a line")
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(decode.BodyTimeout))
	most := int64(a.opts.Limits.Bytes)
	if r.ContentLength > most {
		return nil, a.opts.Limits.TooLarge()
	}
	var grant budget.Grant
	defer grant.Release()
	body, err := a.opts.Limits.Body(http.MaxBytesReader(w, r.Body, most), r.ContentLength, false, &grant)
	var spent *contract.Error
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &spent):
		return nil, spent
	case errors.As(err, &tooLarge):
		return nil, a.opts.Limits.TooLarge()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &contract.Error{Reason: contract.ReasonRequestTimeout,
			Message: fmt.Sprintf("the body did not come within %v; nothing was stored", decode.BodyTimeout)}
	case err != nil:
		return nil, rpc.Invalid("", "the body could not be read: "+err.Error())
	}
	in, err := a.parseImport(body)
	if err == nil {
		err = rpc.CheckImport(r.Context(), in)
	}
	if err != nil {
		return nil, err
	}
	if !a.opts.Node.Leading() {
		return nil, a.opts.Node.NotLeader() // The command line calls the leader's admin listener.
	}
	in.AppendedBy = auth.From(r.Context()).Authenticated()
	done, err := a.opts.Node.Append(r.Context(), in)
	if err != nil {
		return nil, err
	}
	rpc.RecordDone(r.Context(), r.Method+" "+r.URL.Path, rpc.RecordedField{Name: "runId", Text: in.RunID},
		rpc.RecordedField{Name: "tenantId", Text: in.Events[0].TenantID}, rpc.RecordedField{Name: "events", Text: strconv.Itoa(len(in.Events))})
	results := wire.Results(in.Events, &done.Outcome, done.Diverged, done.Keys)
	return &runlogv1.AppendEventsResponse{Results: results, LastSeq: done.LastSeq, Position: rpc.FormatPosition(a.opts.Node.Store().Incarnation(), done.Position)}, nil
}

// parseImport parses the lines of a request and lists every fault.
func (a *Admin) parseImport(body []byte) (*storage.Append, error) {
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
				bad = append(bad, rpc.InEvent(len(records), v))
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
	in := &storage.Append{RunID: records[0].Event.RunId}
	var err error
	if in.Events, err = contract.ValidateAll(events, a.opts.Rules(in.RunID)); err != nil {
		return nil, err
	}
	for i := range records {
		if in.Events[i].AttemptAssigned {
			bad = append(bad, rpc.InEvent(i, contract.Violation{Field: "logicalAttemptId", Reason: contract.ReasonInvalidArgumentField,
				Description: "is required: an imported record keeps its own"}))
			continue
		}
		in.Imported = append(in.Imported, storage.Assigned{RunSeq: records[i].RunSeq, Original: records[i].Origin()})
		for _, v := range records[i].DigestFaults(&in.Events[i]) {
			bad = append(bad, rpc.InEvent(i, v))
		}
	}
	bad = append(bad, inheritPlan(&in.Events[0], &records[0])...)
	if len(bad) > 0 {
		return nil, contract.NewError(bad)
	}
	return in, nil
}

// inheritPlan sets the inherited plan on the first event of a new run, for an import that lacks the
// record with the plan. The fields stay marked as inherited.
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
			bad = append(bad, rpc.InEvent(0, contract.Violation{Field: f.field, Reason: contract.ReasonInvalidArgumentField, Description: fault}))
			continue
		}
		*f.dst = f.text
	}
	return bad
}

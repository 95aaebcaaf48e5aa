package server

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"runlog/proto/contract"
)

// refusal is what an error says in the terms of the contract.
type refusal struct {
	code       codes.Code
	reason     contract.Reason
	metadata   map[string]string
	message    string
	fields     map[string]string // of BadRequest: field to description
	retryAfter time.Duration
}

func refusalOf(t testing.TB, err error) refusal {
	t.Helper()
	st, ok := status.FromError(err)
	if err == nil || !ok {
		t.Fatalf("error %v is no status", err)
	}
	r := refusal{code: st.Code(), message: st.Message(), fields: map[string]string{}}
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			if d.Domain != "runlog" {
				t.Errorf("domain %q", d.Domain)
			}
			r.reason, r.metadata = contract.Reason(d.Reason), d.Metadata
		case *errdetails.BadRequest:
			for _, v := range d.FieldViolations {
				r.fields[v.Field] = v.Description
			}
		case *errdetails.RetryInfo:
			r.retryAfter = d.RetryDelay.AsDuration()
		}
	}
	return r
}

// refused wants an error of a reason, with the gRPC code of the contract's table.
func refused(t testing.TB, err error, reason contract.Reason) refusal {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %s", reason)
	}
	r := refusalOf(t, err)
	if r.reason != reason || r.code != reason.Info().Code {
		t.Fatalf("%v: reason %q, code %v; want %s, %v", err, r.reason, r.code, reason, reason.Info().Code)
	}
	return r
}

// refused wants an HTTP error of a reason, with the HTTP code of the contract's table.
func (a httpAnswer) refused(t testing.TB, reason contract.Reason) refusal {
	t.Helper()
	if a.code != reason.Info().HTTP || a.header.Get("Content-Type") != "application/json" {
		t.Fatalf("HTTP %d %s, want %d for %s: %s", a.code, a.header.Get("Content-Type"), reason.Info().HTTP, reason, a.body)
	}
	m := parseObject(t, a.body)
	r := refusal{fields: map[string]string{}, metadata: map[string]string{}}
	r.message, _ = m["message"].(string)
	if code, _ := m["code"].(json.Number); code.String() != fmt.Sprint(int(reason.Info().Code)) {
		t.Fatalf("code %v, want %d: %s", m["code"], reason.Info().Code, a.body)
	}
	details, _ := m["details"].([]any)
	for _, d := range details {
		d := d.(map[string]any)
		switch d["@type"] {
		case "type.googleapis.com/google.rpc.ErrorInfo":
			r.reason = contract.Reason(d["reason"].(string))
			for k, v := range d["metadata"].(map[string]any) {
				r.metadata[k] = v.(string)
			}
		case "type.googleapis.com/google.rpc.BadRequest":
			for _, v := range d["fieldViolations"].([]any) {
				v := v.(map[string]any)
				r.fields[v["field"].(string)] = v["description"].(string)
			}
		}
	}
	if r.reason != reason {
		t.Fatalf("reason %q, want %s: %s", r.reason, reason, a.body)
	}
	return r
}

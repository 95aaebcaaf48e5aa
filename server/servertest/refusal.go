package servertest

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

// Refusal is what an error says in the terms of the contract.
type Refusal struct {
	Code       codes.Code
	Reason     contract.Reason
	Metadata   map[string]string
	Message    string
	Fields     map[string]string // of BadRequest: field to description
	RetryAfter time.Duration
}

// RefusalOf reads an error, whatever its reason is.
func RefusalOf(t testing.TB, err error) Refusal {
	t.Helper()
	st, ok := status.FromError(err)
	if err == nil || !ok {
		t.Fatalf("error %v is no status", err)
	}
	r := Refusal{Code: st.Code(), Message: st.Message(), Fields: map[string]string{}}
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			if d.Domain != "runlog" {
				t.Errorf("domain %q", d.Domain)
			}
			r.Reason, r.Metadata = contract.Reason(d.Reason), d.Metadata
		case *errdetails.BadRequest:
			for _, v := range d.FieldViolations {
				r.Fields[v.Field] = v.Description
			}
		case *errdetails.RetryInfo:
			r.RetryAfter = d.RetryDelay.AsDuration()
		}
	}
	return r
}

// Refused wants an error of a reason, with the gRPC code of the contract's table.
func Refused(t testing.TB, err error, reason contract.Reason) Refusal {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %s", reason)
	}
	r := RefusalOf(t, err)
	if r.Reason != reason || r.Code != reason.Info().Code {
		t.Fatalf("%v: reason %q, code %v; want %s, %v", err, r.Reason, r.Code, reason, reason.Info().Code)
	}
	return r
}

// Refused wants an HTTP error of a reason, with the HTTP code of the contract's table.
func (a HTTPAnswer) Refused(t testing.TB, reason contract.Reason) Refusal {
	t.Helper()
	if a.Code != reason.Info().HTTP || a.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("HTTP %d %s, want %d for %s: %s", a.Code, a.Header.Get("Content-Type"), reason.Info().HTTP, reason, a.Body)
	}
	m := ParseObject(t, a.Body)
	r := Refusal{Fields: map[string]string{}, Metadata: map[string]string{}}
	r.Message, _ = m["message"].(string)
	if code, _ := m["code"].(json.Number); code.String() != fmt.Sprint(int(reason.Info().Code)) {
		t.Fatalf("code %v, want %d: %s", m["code"], reason.Info().Code, a.Body)
	}
	details, _ := m["details"].([]any)
	for _, d := range details {
		d := d.(map[string]any)
		switch d["@type"] {
		case "type.googleapis.com/google.rpc.ErrorInfo":
			r.Reason = contract.Reason(d["reason"].(string))
			for k, v := range d["metadata"].(map[string]any) {
				r.Metadata[k] = v.(string)
			}
		case "type.googleapis.com/google.rpc.BadRequest":
			for _, v := range d["fieldViolations"].([]any) {
				v := v.(map[string]any)
				r.Fields[v["field"].(string)] = v["description"].(string)
			}
		}
	}
	if r.Reason != reason {
		t.Fatalf("reason %q, want %s: %s", r.Reason, reason, a.Body)
	}
	return r
}

// ReasonIn returns the reason in a status; empty: it has none.
func ReasonIn(st *status.Status) contract.Reason {
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.Domain == "runlog" {
			return contract.Reason(info.Reason)
		}
	}
	return ""
}

package plan

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/types/known/timestamppb"

	runlogv1 "runlog/proto/runlog/v1"
)

// stored is an Opener of one object.
type stored func() (io.ReadCloser, error)

func (s stored) Open(context.Context, string) (io.ReadCloser, error) { return s() }

func holding(body []byte) stored {
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
}

func refOf(body []byte) Ref {
	return Ref{URI: "s3://bucket/plans/p.json", SHA256: digestOf(body), SchemaVersion: "v1.2", PlanID: "p", PlanVersion: "1"}
}

func zipped(tb testing.TB, body []byte) []byte {
	tb.Helper()
	var to bytes.Buffer
	w := gzip.NewWriter(&to)
	if _, err := w.Write(body); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return to.Bytes()
}

// TestFetchPLAN2: a plan is taken if its bytes after decompression are those of its reference.
// Whatever else comes is a failure of the integrity, raises the alert, and counts.
func TestFetchPLAN2(t *testing.T) {
	t.Parallel()
	body := planOf(`{"stepId":"a","type":"noop"}`)
	other := bytes.Replace(body, []byte("noop"), []byte("http"), 1)
	large := make([]byte, MaxBytes+1)
	flipped := bytes.Clone(zipped(t, body))
	flipped[len(flipped)/2] ^= 4
	gzipped := func(r *Ref) { r.Compression = CompressionGzip }
	for name, tt := range map[string]struct {
		stored stored
		change func(*Ref)
		ok     bool
		cause  string
	}{
		"plain":     {stored: holding(body), ok: true},
		"sized":     {stored: holding(body), change: func(r *Ref) { r.SizeBytes = int64(len(body)) }, ok: true},
		"gzip":      {stored: holding(zipped(t, body)), change: gzipped, ok: true},
		"swapped":   {stored: holding(other)},
		"empty":     {stored: holding(nil)},
		"truncated": {stored: holding(body[:20])},
		"cut short": {stored: func() (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(bytes.NewReader(body[:20]), iotest.ErrReader(io.ErrUnexpectedEOF))), nil
		}, cause: "unexpected EOF"},
		"too large":       {stored: holding(large), cause: "more than 16777216 bytes"},
		"bomb":            {stored: holding(zipped(t, large)), change: gzipped, cause: "more than 16777216 bytes"},
		"no gzip":         {stored: holding(body), change: gzipped, cause: "not compressed by gzip"},
		"gzip unasked":    {stored: holding(zipped(t, body))},
		"gzip cut short":  {stored: holding(zipped(t, body)[:40]), change: gzipped, cause: "unexpected EOF"},
		"gzip bit-flip":   {stored: holding(flipped), change: gzipped, cause: "gzip: invalid checksum"},
		"of another size": {stored: holding(body), change: func(r *Ref) { r.SizeBytes = 5 }, cause: "5 are expected"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ref := refOf(body)
			if tt.change != nil {
				tt.change(&ref)
			}
			var log bytes.Buffer
			metrics := prometheus.NewRegistry()
			f, err := NewFetcher(FetcherOptions{Source: tt.stored, Logger: slog.New(slog.NewTextHandler(&log, nil)), Registerer: metrics})
			if err != nil {
				t.Fatal(err)
			}
			p, err := f.Fetch(t.Context(), ref)
			if tt.ok {
				if err != nil || p.Steps[0].ID != "a" {
					t.Fatal(p, err)
				}
				return
			}
			e, ok := errors.AsType[*IntegrityError](err)
			if !ok || e.Retryable() || e.Code() != CodeIntegrity || tt.cause != "" && !strings.Contains(err.Error(), tt.cause) && !strings.Contains(err.Error(), "flate: corrupt input") {
				t.Fatalf("%v, want a failure of the integrity because of %q", err, tt.cause)
			}
			if !strings.Contains(log.String(), "alert=PLAN_INTEGRITY_VALIDATION_FAILED") || !strings.Contains(log.String(), ref.SHA256) {
				t.Errorf("the log has no alert: %s", log.String())
			}
			count := `
				# HELP plan_fetch_integrity_failure_count Plans whose bytes are not those of their references.
				# TYPE plan_fetch_integrity_failure_count counter
				plan_fetch_integrity_failure_count 1
			`
			if err := testutil.GatherAndCompare(metrics, strings.NewReader(count), "plan_fetch_integrity_failure_count"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestMetricsPLAN6: each fetch has its duration, each plan that is the approved one its size, and
// each other one counts.
func TestMetricsPLAN6(t *testing.T) {
	t.Parallel()
	body := planOf(`{"stepId":"a","type":"noop"}`)
	metrics := prometheus.NewRegistry()
	for _, source := range []stored{holding(body), holding(body[1:]), func() (io.ReadCloser, error) { return nil, errors.New("refused") }} {
		f, err := NewFetcher(FetcherOptions{Source: source, Registerer: metrics})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = f.Fetch(t.Context(), refOf(body))
	}
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range families {
		m := f.GetMetric()[0]
		got[f.GetName()] = fmt.Sprint(m.GetCounter().GetValue(), m.GetHistogram().GetSampleCount())
		if f.GetName() == "plan_fetch_size_bytes" && m.GetHistogram().GetSampleSum() != float64(len(body)) {
			t.Errorf("sizes %v, want %d", m.GetHistogram().GetSampleSum(), len(body))
		}
	}
	want := map[string]string{"plan_fetch_integrity_failure_count": "1 0", "plan_fetch_duration_ms": "0 3", "plan_fetch_size_bytes": "0 1"}
	if !maps.Equal(got, want) {
		t.Errorf("metrics %v, want %v", got, want)
	}
}

// TestIntegrityErrorPLAN2: the error is byte for byte that of the specification.
func TestIntegrityErrorPLAN2(t *testing.T) {
	t.Parallel()
	ref := refOf(nil)
	ref.SHA256 = strings.Repeat("a", 64)
	body, err := json.Marshal(&IntegrityError{Ref: ref, ActualSHA256: strings.Repeat("b", 64), Cause: io.ErrUnexpectedEOF})
	const want = `{"category":"VALIDATION_ERROR","code":"PLAN_INTEGRITY_VALIDATION_FAILED",` +
		`"message":"Plan hash mismatch: expected sha256 does not match downloaded content","retryable":false,` +
		`"details":{"expectedSha256":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",` +
		`"actualSha256":"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",` +
		`"planUri":"s3://bucket/plans/p.json","planId":"p","planVersion":"1"}}`
	if err != nil || string(body) != want {
		t.Errorf("got  %s\nwant %s\n%v", body, want, err)
	}
}

type final struct{ error }

func (final) Retryable() bool { return false }

// TestFetchFailuresPLAN2: what the network does is retryable. What the source says never will
// succeed, and references that must not be used, are not. Neither is a plan of another schema
// version than its reference says, which is told before the faults of the plan (PLAN-7).
func TestFetchFailuresPLAN2(t *testing.T) {
	t.Parallel()
	body := planOf(`{"stepId":"a","type":"noop"}`)
	for name, tt := range map[string]struct {
		source    stored
		change    func(*Ref)
		code      string
		retryable bool
	}{
		"connection refused":  {source: func() (io.ReadCloser, error) { return nil, errors.New("connection refused") }, code: CodeFetchFailed, retryable: true},
		"reset while it came": {source: func() (io.ReadCloser, error) { return io.NopCloser(iotest.ErrReader(errors.New("reset"))), nil }, code: CodeFetchFailed, retryable: true},
		"not found":           {source: func() (io.ReadCloser, error) { return nil, final{fs.ErrNotExist} }, code: CodeFetchFailed},
		"expired":             {source: holding(body), change: func(r *Ref) { r.ExpiresAt = time.Unix(1e9, 0) }, code: CodeInvalid},
		"another plan":        {source: holding(body), change: func(r *Ref) { r.PlanID = "other" }, code: CodeInvalid},
		"another version":     {source: holding(body), change: func(r *Ref) { r.PlanVersion = "2" }, code: CodeInvalid},
		"an older schema":     {source: holding(body), change: func(r *Ref) { r.SchemaVersion = "v1.1" }, code: CodeVersionMismatch},
		"a newer schema":      {source: holding(body), change: func(r *Ref) { r.SchemaVersion = "v1.3" }, code: CodeVersionMismatch},
		"another major":       {source: holding(body), change: func(r *Ref) { r.SchemaVersion = "v2.2" }, code: CodeVersionMismatch},
		"schema and plan":     {source: holding(body), change: func(r *Ref) { r.SchemaVersion, r.PlanID = "v1.3", "other" }, code: CodeVersionMismatch},
		"no digest":           {source: holding(body), change: func(r *Ref) { r.SHA256 = "" }, code: CodeInvalid},
		"invalid plan":        {source: holding([]byte(`{}`)), change: func(r *Ref) { r.SHA256 = digestOf([]byte(`{}`)) }, code: CodeInvalid},
		"unknown executor":    {source: holding(body), code: CodeInvalid},
	} {
		ref := refOf(body)
		if tt.change != nil {
			tt.change(&ref)
		}
		f, err := NewFetcher(FetcherOptions{Source: tt.source, Capabilities: []string{"executor:http"}, Clock: func() time.Time { return time.Unix(2e9, 0) }})
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.Fetch(t.Context(), ref)
		e, ok := errors.AsType[Failure](err)
		if !ok || e.Code() != tt.code || e.Retryable() != tt.retryable {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if body, err := json.Marshal(e); err != nil || !strings.Contains(string(body), fmt.Sprintf(`"retryable":%t`, tt.retryable)) {
			t.Errorf("%s: %s, %v", name, body, err)
		}
	}
	if _, err := NewFetcher(FetcherOptions{}); err == nil {
		t.Error("a fetcher without a source")
	}
}

// TestRefPLAN1: references are read with all their faults, and are what they were after a round
// trip through the API.
func TestRefPLAN1(t *testing.T) {
	t.Parallel()
	body := `{"uri":"s3://b/p","sha256":"` + strings.Repeat("0", 64) + `","schemaVersion":"v1.2","planId":"p","planVersion":"1","sizeBytes":5,"compression":"gzip",` +
		`"expiresAt":"2026-12-01T00:00:00Z","schemaEvolutionPath":"v1 → v1.1 → v1.2","migrationHint":{"sourceVersion":"v1.1","targetVersion":"v1.2","transformScript":"s3://b/up.sql"},"later":1}`
	r, err := ParseRef([]byte(body))
	if err != nil || r.ExpiresAt.IsZero() || r.MigrationHint.TargetVersion != "v1.2" {
		t.Fatal(r, err)
	}
	if back := RefOf(&runlogv1.Run{PlanRef: r.Proto()}); !reflect.DeepEqual(back, r) {
		t.Errorf("after the round trip: %+v", back)
	}
	begun := RefOf(&runlogv1.Run{PlanRef: r.Proto(), StartedAt: timestamppb.Now()})
	if r.ExpiresAt = (time.Time{}); !reflect.DeepEqual(begun, r) {
		t.Errorf("of a run that has started: %+v, want one that does not expire", begun)
	}
	for text, faults := range map[string]int{
		`{}`: 5, `[]`: 1, `{"uri":1,"sha256":"x","schemaVersion":"new","planId":"p|q","planVersion":""}`: 5,
		strings.Replace(body, "s3://b/p", "s3://user:pass@b/p", 1): 1, strings.Replace(body, "s3://b/p", "plan.json", 1): 1,
		// What no store of blobs takes is refused before a run begins.
		strings.Replace(body, "s3://b/p", "s3:b/p", 1): 1, strings.Replace(body, "s3://b/p", "s3://b/../p", 1): 1, strings.Replace(body, "s3://b/p", "file://host/p", 1): 1,
		strings.Replace(body, "gzip", "zip", 1): 1, strings.Replace(body, ":5,", ":17000000,", 1): 1, strings.Replace(body, "2026-12", "2026-13", 1): 1,
		strings.Replace(body, "v1.1 → v1.2", "v1.2 → v1.1", 1): 1,
	} {
		_, err := ParseRef([]byte(text))
		if e, ok := errors.AsType[*InvalidError](err); !ok || len(e.Faults) != faults {
			t.Errorf("%.80s: %v, want %d faults", text, err, faults)
		}
	}
}

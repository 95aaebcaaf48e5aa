package plan

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"runlog/engine/blob"
)

// Provider has plans, such as a Fetcher.
type Provider interface {
	Fetch(ctx context.Context, ref Ref) (*Plan, error)
}

// FetcherOptions are those of NewFetcher. Source is required.
type FetcherOptions struct {
	// Source has the plans, such as a blob.Registry. Its errors may say by a method
	// Retryable() bool whether another try may succeed.
	Source blob.Opener
	// Versions that are read. nil: BuiltIn.
	Versions *Versions
	// Capabilities of the engine. nil: they are not compared.
	Capabilities []string
	// Logger gets failures of the integrity at level error, with the alert
	// PLAN_INTEGRITY_VALIDATION_FAILED, and warnings about plans. nil: none.
	Logger *slog.Logger
	// Registerer gets the metrics of PLAN-6. nil: none.
	Registerer prometheus.Registerer
	// Clock is compared with Ref.ExpiresAt. nil: time.Now.
	Clock func() time.Time
}

// Fetcher downloads plans and checks them. It is safe for concurrent use.
type Fetcher struct {
	o       FetcherOptions
	metrics *metrics
}

// NewFetcher returns a Fetcher.
func NewFetcher(o FetcherOptions) (*Fetcher, error) {
	if o.Source == nil {
		return nil, errors.New("plan: the fetcher has no Source: set one, such as a blob.Registry")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, err
	}
	return &Fetcher{o, m}, nil
}

// Fetch downloads the plan of a reference (PLAN-2): at most MaxBytes before and after
// decompression, whose digest is that of the reference. The error is a Failure.
func (f *Fetcher) Fetch(ctx context.Context, ref Ref) (*Plan, error) {
	began := time.Now()
	defer func() { f.metrics.duration.Observe(float64(time.Since(began)) / float64(time.Millisecond)) }()
	if err := ref.Validate(); err != nil {
		return nil, err
	}
	if err := ref.Expired(f.o.Clock()); err != nil {
		return nil, err
	}
	body, err := f.download(ctx, ref)
	if err != nil {
		return nil, err
	}
	f.metrics.size.Observe(float64(len(body)))
	p, warnings, err := Parse(body, Options{Versions: f.o.Versions, SchemaVersion: ref.SchemaVersion, Path: ref.SchemaEvolutionPath,
		Capabilities: f.o.Capabilities})
	if err != nil {
		return nil, err
	}
	for _, text := range warnings {
		f.o.Logger.WarnContext(ctx, "the author of a plan should change it", "plan", ref.PlanID, "version", ref.PlanVersion, "cause", text)
	}
	return p, ref.matches(p)
}

// matches compares the names that a reference has of a plan with those of the plan.
func (r Ref) matches(p *Plan) error {
	var differ faults
	of := func(name, is, want string) {
		if is != want {
			differ.add((*place)(nil).member(name), "is %s in the reference, and %s in the plan: correct the reference", quote(want), quote(is))
		}
	}
	of("planId", p.PlanID, r.PlanID)
	of("planVersion", p.PlanVersion, r.PlanVersion)
	return differ.err(whatRef)
}

// download returns the bytes of a plan after decompression. What is cut short or damaged on its way
// is no failure of the network: nothing says that another try would get the plan that was approved.
func (f *Fetcher) download(ctx context.Context, ref Ref) ([]byte, error) {
	stored, err := blob.ReadAll(ctx, f.o.Source, ref.URI, MaxBytes)
	if large, _ := errors.AsType[*blob.TooLargeError](err); large != nil || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, f.damaged(ctx, ref, stored, err)
	}
	if err != nil {
		return nil, &FetchError{URI: blob.Shown(ref.URI), Err: err}
	}
	body := stored
	if ref.Compression == CompressionGzip {
		if body, err = gunzip(stored); err != nil {
			return nil, f.damaged(ctx, ref, body, err)
		}
	}
	if ref.SizeBytes != 0 && int64(len(body)) != ref.SizeBytes {
		return nil, f.damaged(ctx, ref, body, fmt.Errorf("it has %d bytes, and %d are expected", len(body), ref.SizeBytes))
	}
	if digestOf(body) != ref.SHA256 {
		return nil, f.damaged(ctx, ref, body, nil)
	}
	return body, nil
}

func gunzip(stored []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(stored))
	if err != nil {
		return nil, fmt.Errorf("it is not compressed by gzip: %w", err)
	}
	body, err := io.ReadAll(io.LimitReader(r, MaxBytes+1))
	if err == nil && len(body) > MaxBytes {
		err = fmt.Errorf("it has more than %d bytes after decompression", MaxBytes)
	}
	return body, errors.Join(err, r.Close())
}

func digestOf(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// damaged raises the alert of PLAN-2.
func (f *Fetcher) damaged(ctx context.Context, ref Ref, body []byte, cause error) error {
	e := &IntegrityError{Ref: ref, ActualSHA256: digestOf(body), Cause: cause}
	f.metrics.failures.Inc()
	f.o.Logger.ErrorContext(ctx, "a plan is not the one that was approved", "alert", CodeIntegrity, "plan", ref.PlanID,
		"version", ref.PlanVersion, "expected", ref.SHA256, "actual", e.ActualSHA256, "err", e)
	return e
}

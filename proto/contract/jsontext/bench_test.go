package jsontext

import (
	"encoding/json"
	"testing"
)

// samplePayload is about 400 bytes, as a StepCompleted has them.
var samplePayload = []byte(`{"artifacts":[{"uri":"s3://dvt-artifacts/prod/run_2026-02-11_abc123/build/manifest.json","kind":"dbt-manifest","sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","sizeBytes":184320},{"uri":"s3://dvt-artifacts/prod/run_2026-02-11_abc123/build/run_results.json","kind":"dbt-run-results"}],"metrics":{"rowsRead":1829301,"cpuSeconds":12.75,"warehouse":"wh_\u00e9tl"},"completedAt":"2026-02-11T10:31:12.500Z"}`)

func BenchmarkCheckObject(b *testing.B) {
	b.Run("jsontext", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			CheckObject(samplePayload, MaxDepth)
		}
	})
	b.Run("encodingJSON", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			json.Valid(samplePayload)
		}
	})
}

func BenchmarkWalk(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		c := Members(samplePayload)
		for _, value, ok := c.Member(); ok; _, value, ok = c.Member() {
			e := Elements(value)
			for _, ok := e.Element(); ok; _, ok = e.Element() {
			}
		}
	}
}

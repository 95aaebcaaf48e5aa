package server

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	runlogv1 "runlog/proto/runlog/v1"

	"runlog/testbed/bubble"
)

// This file is the code of an auditor with docs/formats.md and the API only: it shares no code with
// the server.

// auditRun verifies the records of a run from the first one on, payloads as bytes: rising runSeq,
// digests and chain (APP-11).
func auditRun(records []*runlogv1.EventRecord) error {
	chain := make([]byte, 32)
	var last uint64
	for _, r := range records {
		if r.RunSeq <= last {
			return fmt.Errorf("runSeq %d after %d", r.RunSeq, last)
		}
		last = r.RunSeq
		envelope, err := envelopeBytes(r)
		if err != nil {
			return fmt.Errorf("runSeq %d: %w", r.RunSeq, err)
		}
		payload := sha256.Sum256(r.GetPayloadJson())
		envelope = append(envelope, payload[:]...)
		if by := r.AppendedBy; by != nil {
			envelope = append(envelope, 18)
			envelope = append(binary.BigEndian.AppendUint32(envelope, uint32(len(*by))), *by...)
		}
		record := sha256.Sum256(envelope)
		link := append([]byte("runlog/chain/1\x00"), chain...)
		link = append(link, record[:]...)
		link = binary.BigEndian.AppendUint64(link, r.RunSeq)
		link = binary.BigEndian.AppendUint64(link, uint64(sinceEpoch(r.PersistedAt)))
		next := sha256.Sum256(link)
		chain = next[:]
		for _, d := range []struct {
			name, have string
			want       []byte
		}{{"payload", r.PayloadDigest, payload[:]}, {"record", r.RecordDigest, record[:]}, {"chain", r.ChainDigest, chain}} {
			if d.have != hex.EncodeToString(d.want) {
				return fmt.Errorf("runSeq %d: %s digest %s, want %x", r.RunSeq, d.name, d.have, d.want)
			}
		}
	}
	return nil
}

func sinceEpoch(t *timestamppb.Timestamp) int64 {
	return t.GetSeconds()*1_000_000_000 + int64(t.GetNanos())
}

// envelopeBytes are the canonical envelope bytes.
func envelopeBytes(r *runlogv1.EventRecord) ([]byte, error) {
	b := []byte("runlog/envelope/1\x00")
	add := func(number byte, value []byte) {
		b = append(b, number)
		b = binary.BigEndian.AppendUint32(b, uint32(len(value)))
		b = append(b, value...)
	}
	given := func(number byte, name, value string) {
		if !slices.Contains(r.Inherited, name) {
			add(number, []byte(value))
		}
	}
	present := func(number byte, value *string) {
		if value != nil {
			add(number, []byte(*value))
		}
	}
	eight := func(number byte, value uint64) { add(number, binary.BigEndian.AppendUint64(nil, value)) }

	id, err := hex.DecodeString(strings.ReplaceAll(r.EventId, "-", ""))
	if err != nil || len(id) != 16 {
		return nil, fmt.Errorf("eventId %q", r.EventId)
	}
	add(1, id)
	add(2, []byte(r.EventType))
	add(3, []byte(r.RunId))
	given(4, "tenantId", r.TenantId)
	given(5, "projectId", r.ProjectId)
	given(6, "environmentId", r.EnvironmentId)
	given(7, "planId", r.PlanId)
	given(8, "planVersion", r.PlanVersion)
	present(9, r.StepId)
	eight(10, uint64(r.LogicalAttemptId))
	eight(11, uint64(r.EngineAttemptId))
	add(12, []byte(r.IdempotencyKey))
	eight(13, uint64(sinceEpoch(r.EmittedAt)))
	present(14, r.EmittedBy)
	present(15, r.CausedBySignalId)
	present(16, r.ParentEventId)
	if r.ExtensionsJson != nil {
		add(19, r.ExtensionsJson)
	}
	add(17, []byte(r.ContractVersion))
	return b, nil
}

// derivedKey is the idempotency key of an event that names its plan (IDM-1 to IDM-3).
func derivedKey(r *runlogv1.EventRecord) string {
	parts := []string{r.RunId, "RUN", strconv.FormatUint(uint64(r.LogicalAttemptId), 10), r.EventType, r.PlanId, r.PlanVersion}
	if r.StepId != nil {
		parts[1] = *r.StepId
	}
	if r.ContractVersion == "1.1" {
		parts = slices.Delete(parts, 4, 5)
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, "|")))
	return hex.EncodeToString(sum[:])
}

// verifyChain wants the records of a run to hold what docs/formats.md promises.
func verifyChain(t testing.TB, records []*runlogv1.EventRecord) {
	t.Helper()
	if err := auditRun(records); err != nil {
		t.Fatalf("run %s: %v", records[0].RunId, err)
	}
}

// publishedChains reads docs/vectors/chains.json as records of the API. Inherited fields have
// values that must not matter.
func publishedChains(t testing.TB) map[string][]*runlogv1.EventRecord {
	t.Helper()
	text, err := os.ReadFile("../docs/vectors/chains.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Chains []struct {
			Name    string
			Records []struct {
				Fields                                                                 json.RawMessage
				Absent                                                                 []string
				Payload, RunSeq, PersistedAt, PayloadDigest, RecordDigest, ChainDigest string
				AppendedBy, Extensions                                                 *string
			}
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	chains := map[string][]*runlogv1.EventRecord{}
	for _, chain := range file.Chains {
		for _, v := range chain.Records {
			members := map[string]any{
				"runSeq": v.RunSeq, "persistedAt": v.PersistedAt, "inherited": v.Absent, "payloadJson": []byte(v.Payload),
				"payloadDigest": v.PayloadDigest, "recordDigest": v.RecordDigest, "chainDigest": v.ChainDigest,
			}
			if v.AppendedBy != nil {
				members["appendedBy"] = *v.AppendedBy
			}
			if v.Extensions != nil {
				members["extensionsJson"] = []byte(*v.Extensions)
			}
			rest, err := json.Marshal(members)
			if err != nil {
				t.Fatal(err)
			}
			var r, more runlogv1.EventRecord
			for text, m := range map[string]*runlogv1.EventRecord{string(v.Fields): &r, string(rest): &more} {
				if err := protojson.Unmarshal([]byte(text), m); err != nil {
					t.Fatalf("%s: %v", chain.Name, err)
				}
			}
			proto.Merge(&r, &more)
			for name, field := range inheritable(&r) {
				if slices.Contains(v.Absent, name) {
					*field = "from the run"
				}
			}
			chains[chain.Name] = append(chains[chain.Name], &r)
		}
	}
	return chains
}

func inheritable(r *runlogv1.EventRecord) map[string]*string {
	return map[string]*string{
		"tenantId": &r.TenantId, "projectId": &r.ProjectId, "environmentId": &r.EnvironmentId,
		"planId": &r.PlanId, "planVersion": &r.PlanVersion,
	}
}

// TestAuditorAPP11: the auditor of these tests agrees with the published chains, and sees every
// change.
func TestAuditorAPP11(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		chains := publishedChains(t)
		if len(chains) < 10 {
			t.Errorf("%d chains", len(chains))
		}
		other := "other"
		for name, records := range chains {
			if err := auditRun(records); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			for i := range records {
				for what, change := range map[string]func(*runlogv1.EventRecord){
					"eventId":       func(r *runlogv1.EventRecord) { r.EventId = "00000000-0000-0000-0000-000000000009" },
					"eventType":     func(r *runlogv1.EventRecord) { r.EventType += "x" },
					"runId":         func(r *runlogv1.EventRecord) { r.RunId += "x" },
					"stepId":        func(r *runlogv1.EventRecord) { r.StepId = &other },
					"attempt":       func(r *runlogv1.EventRecord) { r.LogicalAttemptId++ },
					"engineAttempt": func(r *runlogv1.EventRecord) { r.EngineAttemptId++ },
					"key":           func(r *runlogv1.EventRecord) { r.IdempotencyKey += "x" },
					"emittedAt":     func(r *runlogv1.EventRecord) { r.EmittedAt.Nanos ^= 1 },
					"emittedBy":     func(r *runlogv1.EventRecord) { r.EmittedBy = &other },
					"appendedBy":    func(r *runlogv1.EventRecord) { r.AppendedBy = &other },
					"cause":         func(r *runlogv1.EventRecord) { r.CausedBySignalId = &other },
					"parent":        func(r *runlogv1.EventRecord) { r.ParentEventId = &other },
					"extensions":    func(r *runlogv1.EventRecord) { r.ExtensionsJson = append(r.ExtensionsJson, ' ') },
					"contract":      func(r *runlogv1.EventRecord) { r.ContractVersion += "1" },
					"payload": func(r *runlogv1.EventRecord) {
						r.PayloadForm = &runlogv1.EventRecord_PayloadJson{PayloadJson: append(r.GetPayloadJson(), ' ')}
					},
					"runSeq":      func(r *runlogv1.EventRecord) { r.RunSeq ^= 1 },
					"persistedAt": func(r *runlogv1.EventRecord) { r.PersistedAt.Nanos ^= 1 },
					"tenantId given or not": func(r *runlogv1.EventRecord) {
						if slices.Contains(r.Inherited, "tenantId") {
							r.Inherited = nil
						} else {
							r.TenantId += "x"
						}
					},
				} {
					changed := slices.Clone(records)
					changed[i] = proto.CloneOf(records[i])
					change(changed[i])
					if auditRun(changed) == nil {
						t.Errorf("%s, record %d: another %s goes unseen", name, i, what)
					}
				}
				if i+1 < len(records) && auditRun(slices.Delete(slices.Clone(records), i, i+1)) == nil {
					t.Errorf("%s: record %d is missing unseen", name, i)
				}
			}
		}
	})
}

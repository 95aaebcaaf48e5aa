package events_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

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

// publishedChains reads docs/vectors/chains.json as records of the API. Inherited fields have
// values that must not matter.
func publishedChains(t testing.TB) map[string][]*runlogv1.EventRecord {
	t.Helper()
	text, err := os.ReadFile("../../docs/vectors/chains.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Chains []struct {
			Name    string
			Records []struct {
				Fields                                                                              json.RawMessage
				Absent                                                                              []string
				Payload, RunSeq, PersistedAt, PayloadSalt, PayloadDigest, RecordDigest, ChainDigest string
				AppendedBy, AppendedByTokenID, Extensions                                           *string
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
				"payloadSalt": v.PayloadSalt, "payloadDigest": v.PayloadDigest, "recordDigest": v.RecordDigest, "chainDigest": v.ChainDigest,
			}
			if v.AppendedBy != nil {
				members["appendedBy"] = *v.AppendedBy
			}
			if v.AppendedByTokenID != nil {
				members["appendedByTokenId"] = *v.AppendedByTokenID
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
			if err := servertest.AuditRun(records); err != nil {
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
					"token":         func(r *runlogv1.EventRecord) { r.AppendedByTokenId = &other },
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
					if servertest.AuditRun(changed) == nil {
						t.Errorf("%s, record %d: another %s goes unseen", name, i, what)
					}
				}
				if i+1 < len(records) && servertest.AuditRun(slices.Delete(slices.Clone(records), i, i+1)) == nil {
					t.Errorf("%s: record %d is missing unseen", name, i)
				}
			}
		}
	})
}

package contract

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

// readVectors reads a file of docs/vectors. They were made by a program that shares no code with
// this.
func readVectors(t *testing.T, name string, to any) {
	t.Helper()
	text, err := os.ReadFile("../../docs/vectors/" + name)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

type publishedKeys struct {
	About   string         `json:"about"`
	Keys    []publishedKey `json:"keys"`
	SameKey [][]string     `json:"sameKey"`
}

type publishedKey struct {
	Name     string          `json:"name"`
	Event    json.RawMessage `json:"event"`
	Preimage string          `json:"preimage"`
	Key      string          `json:"key"`
}

// The published keys are what the server derives, and takes when a producer sends them.
func TestIDM1IDM2IDM3PublishedKeys(t *testing.T) {
	var published publishedKeys
	readVectors(t, "keys.json", &published)
	if len(published.Keys) < 30 {
		t.Errorf("%d keys", len(published.Keys))
	}
	lines := make(map[Line]int)
	for _, v := range published.Keys {
		e := publishedEvent(t, v.Name, v.Event)
		lines[e.Contract]++
		if sum := sha256.Sum256([]byte(v.Preimage)); hex.EncodeToString(sum[:]) != v.Key {
			t.Errorf("%s: the key is not that of the preimage", v.Name)
		}
		if e.IdempotencyKey != v.Key || !e.KeyDerived {
			t.Errorf("%s: derived %s, want %s", v.Name, e.IdempotencyKey, v.Key)
		}
		if got := DeriveKey(e.Contract, e.RunID, e.StepID, e.LogicalAttemptID, e.EngineAttemptID, e.Type, e.PlanID, e.PlanVersion); got != v.Key {
			t.Errorf("%s: DeriveKey %s, want %s", v.Name, got, v.Key)
		}
		keyed := append(bytes.TrimSuffix(bytes.TrimSpace(v.Event), []byte("}")), `,"idempotencyKey":"`+v.Key+`"}`...)
		if e := publishedEvent(t, v.Name, keyed); !e.KeyDerived {
			t.Errorf("%s: the key is not known as the derived one", v.Name)
		}
	}
	if lines[Line2] < 15 || lines[Line11] < 5 {
		t.Errorf("lines %v", lines)
	}
}

// Fields that must not matter do not, and all others do.
func TestIDM4PublishedKeysOfEqualEvents(t *testing.T) {
	var published publishedKeys
	readVectors(t, "keys.json", &published)
	byKey := make(map[string][]string)
	for _, v := range published.Keys {
		byKey[v.Key] = append(byKey[v.Key], v.Name)
	}
	for _, want := range published.SameKey {
		i := slices.IndexFunc(published.Keys, func(v publishedKey) bool { return v.Name == want[0] })
		got := byKey[published.Keys[i].Key]
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("one key: %q, want %q", got, want)
		}
		delete(byKey, published.Keys[i].Key)
	}
	for key, names := range byKey {
		if len(names) > 1 {
			t.Errorf("%s names %q", key, names)
		}
	}
}

// publishedEvent is the event that a vector's JSON stands for.
func publishedEvent(t *testing.T, name string, text []byte) Event {
	t.Helper()
	w, err := ParseEvent(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	e, bad := Validate(w, Options{OpaqueKeys: true})
	if w.StepId == runStep && len(bad) == 1 && bad[0].Field == "stepId" {
		// It was stored before ENV-13.
		w.StepId, w.IdempotencyKey = "step", ""
		e, bad = Validate(w, Options{OpaqueKeys: true})
		e.StepID = runStep
		e.IdempotencyKey = DeriveKey(e.Contract, e.RunID, e.StepID, e.LogicalAttemptID, e.EngineAttemptID, e.Type, e.PlanID, e.PlanVersion)
	}
	if len(bad) > 0 {
		t.Fatalf("%s: %v", name, bad)
	}
	return e
}

type publishedChains struct {
	About  string `json:"about"`
	Chains []struct {
		Name    string            `json:"name"`
		Records []publishedRecord `json:"records"`
	} `json:"chains"`
}

type publishedRecord struct {
	Sent             string          `json:"sent"`
	Fields           publishedFields `json:"fields"`
	Absent           []string        `json:"absent"`
	EmittedAtNanos   string          `json:"emittedAtNanos"`
	Extensions       string          `json:"extensions"`
	Payload          string          `json:"payload"`
	PayloadHex       string          `json:"payloadHex"`
	RunSeq           string          `json:"runSeq"`
	PersistedAt      time.Time       `json:"persistedAt"`
	PersistedAtNanos string          `json:"persistedAtNanos"`
	AppendedBy       string          `json:"appendedBy"`
	TokenID          string          `json:"appendedByTokenId"`
	CanonicalHex     string          `json:"canonicalHex"`
	PayloadSalt      string          `json:"payloadSalt"`
	PayloadDigest    string          `json:"payloadDigest"`
	RecordDigest     string          `json:"recordDigest"`
	ChainDigest      string          `json:"chainDigest"`
}

type publishedFields struct {
	EventID          string    `json:"eventId"`
	EventType        string    `json:"eventType"`
	RunID            string    `json:"runId"`
	TenantID         string    `json:"tenantId"`
	ProjectID        string    `json:"projectId"`
	EnvironmentID    string    `json:"environmentId"`
	PlanID           string    `json:"planId"`
	PlanVersion      string    `json:"planVersion"`
	StepID           string    `json:"stepId"`
	LogicalAttemptID uint32    `json:"logicalAttemptId"`
	EngineAttemptID  uint32    `json:"engineAttemptId"`
	IdempotencyKey   string    `json:"idempotencyKey"`
	EmittedAt        time.Time `json:"emittedAt"`
	EmittedBy        string    `json:"emittedBy"`
	CausedBySignalID string    `json:"causedBySignalId"`
	ParentEventID    string    `json:"parentEventId"`
	ContractVersion  string    `json:"contractVersion"`
}

// The published chains are what the server makes of the events that their producers sent.
func TestAPP11PublishedChains(t *testing.T) {
	var published publishedChains
	readVectors(t, "chains.json", &published)
	if len(published.Chains) < 10 {
		t.Errorf("%d chains", len(published.Chains))
	}
	for _, chain := range published.Chains {
		t.Run(chain.Name, func(t *testing.T) {
			var head Digest
			for i := range chain.Records {
				head = checkPublishedRecord(t, &chain.Records[i], head)
			}
		})
	}
}

// checkPublishedRecord requires that a record is made of what was sent, and returns its link.
func checkPublishedRecord(t *testing.T, r *publishedRecord, head Digest) Digest {
	t.Helper()
	e := publishedEvent(t, r.RunSeq, []byte(r.Sent))
	if string(e.Extensions) != r.Extensions {
		t.Errorf("%s: extensions %q, want %q", r.RunSeq, e.Extensions, r.Extensions)
	}
	if string(e.Payload) != r.Payload || hex.EncodeToString(e.Payload) != r.PayloadHex {
		t.Errorf("%s: payload %q, want %q", r.RunSeq, e.Payload, r.Payload)
	}
	if got := fieldsOf(&e); got != r.Fields {
		t.Errorf("%s: fields\n%+v, want\n%+v", r.RunSeq, got, r.Fields)
	}
	if got := absentOf(&e); !slices.Equal(got, r.Absent) {
		t.Errorf("%s: absent %q, want %q", r.RunSeq, got, r.Absent)
	}
	if got := strconv.FormatInt(e.EmittedAt, 10); got != r.EmittedAtNanos {
		t.Errorf("%s: emittedAt %s, want %s", r.RunSeq, got, r.EmittedAtNanos)
	}
	if got := hex.EncodeToString(e.AppendCanonical(nil)); got != r.CanonicalHex {
		t.Errorf("%s: canonical bytes\n%s, want\n%s", r.RunSeq, got, r.CanonicalHex)
	}
	var salt Salt
	if !ParseSalt(&salt, r.PayloadSalt) {
		t.Fatalf("%s: salt %q", r.RunSeq, r.PayloadSalt)
	}
	payload, record := e.Digests(salt, Author{r.AppendedBy, r.TokenID}, Original{})
	if payload.String() != r.PayloadDigest || record.String() != r.RecordDigest {
		t.Errorf("%s: digests %s %s, want %s %s", r.RunSeq, payload, record, r.PayloadDigest, r.RecordDigest)
	}
	seq, err := strconv.ParseUint(r.RunSeq, 10, 64)
	if err != nil || strconv.FormatInt(r.PersistedAt.UnixNano(), 10) != r.PersistedAtNanos {
		t.Fatalf("%s: persistedAt %s is not %s: %v", r.RunSeq, r.PersistedAt, r.PersistedAtNanos, err)
	}
	head = ChainDigest(head, record, seq, r.PersistedAt.UnixNano())
	if head.String() != r.ChainDigest {
		t.Errorf("%s: chain %s, want %s", r.RunSeq, head, r.ChainDigest)
	}
	return head
}

func fieldsOf(e *Event) publishedFields {
	return publishedFields{
		EventID: e.EventID.String(), EventType: e.Type, RunID: e.RunID, TenantID: e.TenantID, ProjectID: e.ProjectID, EnvironmentID: e.EnvironmentID,
		PlanID: e.PlanID, PlanVersion: e.PlanVersion, StepID: e.StepID, LogicalAttemptID: e.LogicalAttemptID, EngineAttemptID: e.EngineAttemptID,
		IdempotencyKey: e.IdempotencyKey, EmittedAt: time.Unix(0, e.EmittedAt).UTC(), EmittedBy: e.EmittedBy, CausedBySignalID: e.CausedBySignalID,
		ParentEventID: e.ParentEventID, ContractVersion: e.Contract.String(),
	}
}

func absentOf(e *Event) []string {
	absent := []string{}
	for i, name := range []string{"tenantId", "projectId", "environmentId", "planId", "planVersion"} {
		if e.Absent>>i&1 == 1 {
			absent = append(absent, name)
		}
	}
	return absent
}

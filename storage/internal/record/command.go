package record

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	recordv1 "runlog/proto/record/v1"
)

const (
	// HeaderSize is the fixed part of an event that apply needs: SHA-256 of the key (32), record
	// digest (32), event id (16), content digest (8).
	HeaderSize = 88

	// blockTarget is the size before compression at which a block is closed, in bytes (D6).
	blockTarget = 32 << 10
	// ChunkTarget is the size before compression at which a chunk is closed, in bytes (D6).
	ChunkTarget = 32 << 10

	// maxBlock is what a block may hold before compression: far more than blockTarget and the
	// largest event, so that a reader knows a length that cannot be true.
	maxBlock = 16 << 20

	// Below this many bytes S2 gains nothing worth its time.
	compressFrom = 512
)

// Command is one encoded request to the state machine. It is made by the goroutine of the request:
// digests, encoding and compression are done before anything queues (D6).
type Command struct {
	data []byte
}

// Size is what the command adds to a proposal, in bytes.
func (c Command) Size() int { return len(c.data) + commandOverhead }

// Append is a validated request to store events of one run, all or none (APP-3).
type Append struct {
	RunID  string
	Events []contract.Event // 0 to 1,000; none only with Create
	// ExpectedLastSeq must equal the run's last runSeq, when set (APP-4).
	ExpectedLastSeq *uint64
	// Fence must equal the run's current fence, when set; 0: the run was never leased (QUE-8).
	Fence *uint64
	// OnlyNew: every event must be new. Without it, those that are not are answered as duplicates
	// (IDM-6).
	OnlyNew bool
	// Create makes the run; it must not exist with other metadata (APP-12).
	Create *Creation
	// Exclusive, with Create: the run must not exist at all (APP-12).
	Exclusive bool
	// Imported is empty, or has what each of the events keeps of another authority. runSeq rises;
	// neither it nor persistedAt is 0.
	Imported []Assigned
	// AppendedBy is the authenticated caller, with which the events are recorded (SEC-8).
	AppendedBy contract.Author
	// Salts are those of the payloads, one for each event (LIFE-5). Empty: encoding makes random
	// ones, as it does for all but tests.
	Salts []contract.Salt
	// Keyed: the cluster has a key for receipts. Otherwise the command brings ReceiptKey along: a
	// random one, unless a test sets it.
	Keyed      bool
	ReceiptKey ReceiptKey
}

// original is what the source of the i-th event said of it.
func (a *Append) original(i int) contract.Original {
	if len(a.Imported) > 0 {
		return a.Imported[i].Original
	}
	return contract.Original{}
}

// Creation is what CreateRun says about a run.
type Creation struct {
	Scope    Scope
	Metadata Metadata
}

// Scope is where a run belongs (APP-6).
type Scope struct {
	TenantID      string
	ProjectID     string
	EnvironmentID string
}

// Metadata of a run, as CreateRun gave it.
type Metadata struct {
	PlanRef       *PlanRef
	EngineType    string
	EngineRunRef  string
	TriggeredBy   string
	TriggerSource string
	Labels        map[string]string
	// CreatedBy is the name of the authenticated identity that called CreateRun first. Empty: there
	// was none.
	CreatedBy string
}

// PlanRef points at the plan of a run.
type PlanRef struct {
	URI           string
	SHA256        string
	SchemaVersion string
	PlanID        string
	PlanVersion   string
	SizeBytes     *int64
	Compression   *string
	// ExpiresAt is a time as it was sent. Empty: never.
	ExpiresAt           string
	SchemaEvolutionPath string
	MigrationHint       *MigrationHint
}

// MigrationHint is that of a PlanRef.
type MigrationHint struct {
	SourceVersion   string
	TargetVersion   string
	TransformScript string
}

// Marshal encodes a message of a command.
func Marshal(m proto.Message) ([]byte, error) {
	data, err := proto.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("storage: encode command: %w", err)
	}
	return data, nil
}

// ScopeOf returns the scope that a request's events name between them. Two that differ cannot be of
// one run: *ScopeError (APP-6).
func ScopeOf(a *Append) (Scope, error) {
	var s Scope
	if a.Create != nil {
		s = a.Create.Scope
	}
	for i := range a.Events {
		e := &a.Events[i]
		for _, f := range [...]struct {
			field  string
			have   *string
			given  string
			absent contract.Absent
		}{
			{"tenantId", &s.TenantID, e.TenantID, contract.AbsentTenant},
			{"projectId", &s.ProjectID, e.ProjectID, contract.AbsentProject},
			{"environmentId", &s.EnvironmentID, e.EnvironmentID, contract.AbsentEnvironment},
		} {
			switch {
			case e.Absent&f.absent != 0 || f.given == *f.have:
			case *f.have == "":
				*f.have = f.given
			default:
				return s, &ScopeError{RunID: a.RunID, Field: f.field, Index: i, Given: f.given, Want: *f.have}
			}
		}
	}
	return s, nil
}

// ScopeError says that an event names another scope than its run's (APP-6).
type ScopeError struct {
	RunID string
	Field string // tenantId, projectId or environmentId
	Index int    // of the event in its request, -1 when the request as a whole names it
	Given string
	Want  string
}

func (e *ScopeError) Error() string {
	return fmt.Sprintf("run %q belongs to %s %q, not to %q", e.RunID, e.Field, e.Want, e.Given)
}

func appendHeader(dst []byte, e *contract.Event, salt contract.Salt, by contract.Author, original contract.Original) []byte {
	key := contract.KeyHash(e.IdempotencyKey)
	_, record := e.Digests(salt, by, original)
	content := e.ContentDigest()
	dst = append(dst, key[:]...)
	dst = append(dst, record[:]...)
	dst = append(dst, e.EventID[:]...)
	return append(dst, content[:]...)
}

// EncodeMetadata leaves out what CreateRun said.
func EncodeMetadata(md *Metadata) *recordv1.RunMetadata {
	m := &recordv1.RunMetadata{
		EngineType:    md.EngineType,
		EngineRunRef:  md.EngineRunRef,
		TriggeredBy:   md.TriggeredBy,
		TriggerSource: md.TriggerSource,
		Labels:        md.Labels,
		CreatedBy:     md.CreatedBy,
	}
	if r := md.PlanRef; r != nil {
		m.PlanRef = &recordv1.PlanRef{
			Uri: r.URI, Sha256: r.SHA256, SchemaVersion: r.SchemaVersion,
			PlanId: r.PlanID, PlanVersion: r.PlanVersion,
			SizeBytes: r.SizeBytes, Compression: r.Compression,
			ExpiresAt: r.ExpiresAt, SchemaEvolutionPath: r.SchemaEvolutionPath,
		}
		if h := r.MigrationHint; h != nil {
			m.PlanRef.MigrationHint = &recordv1.MigrationHint{
				SourceVersion: h.SourceVersion, TargetVersion: h.TargetVersion, TransformScript: h.TransformScript,
			}
		}
	}
	return m
}

// DecodeMetadata is the inverse of EncodeMetadata.
func DecodeMetadata(m *recordv1.RunMetadata) *Metadata {
	md := &Metadata{
		EngineType:    m.GetEngineType(),
		EngineRunRef:  m.GetEngineRunRef(),
		TriggeredBy:   m.GetTriggeredBy(),
		TriggerSource: m.GetTriggerSource(),
		Labels:        m.GetLabels(),
		CreatedBy:     m.GetCreatedBy(),
	}
	if r := m.GetPlanRef(); r != nil {
		md.PlanRef = &PlanRef{
			URI: r.Uri, SHA256: r.Sha256, SchemaVersion: r.SchemaVersion,
			PlanID: r.PlanId, PlanVersion: r.PlanVersion,
			SizeBytes: r.SizeBytes, Compression: r.Compression,
			ExpiresAt: r.ExpiresAt, SchemaEvolutionPath: r.SchemaEvolutionPath,
		}
		if h := r.MigrationHint; h != nil {
			md.PlanRef.MigrationHint = &MigrationHint{h.SourceVersion, h.TargetVersion, h.TransformScript}
		}
	}
	return md
}

package plan

import (
	"fmt"
	"time"

	"runlog/engine/blob"
	"runlog/proto/contract"
	"runlog/proto/contract/jsontext"
	"runlog/proto/contract/secrets"
	runlogv1 "runlog/proto/runlog/v1"
)

// MaxBytes is the largest plan, before and after decompression.
const MaxBytes = 16 << 20

// The compressions of a stored plan.
const (
	CompressionNone = "none"
	CompressionGzip = "gzip"
)

// Ref points at a plan, and says which bytes it has (PLAN-1).
type Ref struct {
	URI string `json:"uri"`
	// SHA256 is the digest of the plan after decompression, in lower-case hex.
	SHA256        string `json:"sha256"`
	SchemaVersion string `json:"schemaVersion"`
	PlanID        string `json:"planId"`
	PlanVersion   string `json:"planVersion"`
	// SizeBytes counts the bytes of the digest. 0: not said.
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// Compression of what the URI has: none or gzip. Empty: none.
	Compression string `json:"compression,omitempty"`
	// ExpiresAt is the time from which no run of the reference begins (PLAN-7). Zero: it is never.
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	// SchemaEvolutionPath lists the versions that the plan is migrated through, such as
	// "v1 → v1.1 → v1.2". Empty: each minor version in turn.
	SchemaEvolutionPath string         `json:"schemaEvolutionPath,omitempty"`
	MigrationHint       *MigrationHint `json:"migrationHint,omitempty"`
}

// MigrationHint tells people how a plan was brought to another schema version. The engine runs no
// script of a reference.
type MigrationHint struct {
	SourceVersion   string `json:"sourceVersion"`
	TargetVersion   string `json:"targetVersion"`
	TransformScript string `json:"transformScript,omitempty"`
}

const whatRef = "plan reference"

// ParseRef reads a reference from JSON. It ignores members that it does not know. The error, an
// *InvalidError, lists every fault.
func ParseRef(body []byte) (Ref, error) {
	var r Ref
	var d decoder
	if pos, fault := jsontext.CheckObject(body, jsontext.MaxDepth); fault != 0 {
		d.add(nil, "is no JSON object: %s at byte %d", fault, pos)
		return Ref{}, d.err(whatRef)
	}
	d.open = true
	var expires string
	value := body[jsontext.SkipSpace(body, 0):]
	d.object(nil, value, []member{
		{"uri", true, d.text(&r.URI, nil)}, {"sha256", true, d.text(&r.SHA256, nil)},
		{"schemaVersion", true, d.text(&r.SchemaVersion, nil)},
		{"planId", true, d.text(&r.PlanID, nil)}, {"planVersion", true, d.text(&r.PlanVersion, nil)},
		{"sizeBytes", false, d.integer(&r.SizeBytes, 1, MaxBytes)}, {"compression", false, d.text(&r.Compression, nil)},
		{"expiresAt", false, d.text(&expires, nil)}, {"schemaEvolutionPath", false, d.text(&r.SchemaEvolutionPath, nil)},
		{"migrationHint", false, func(p *place, value []byte) {
			h := &MigrationHint{}
			r.MigrationHint = h
			d.object(p, value, []member{
				{"sourceVersion", true, d.text(&h.SourceVersion, nil)}, {"targetVersion", true, d.text(&h.TargetVersion, nil)},
				{"transformScript", false, d.text(&h.TransformScript, nil)},
			})
		}},
	})
	if expires != "" {
		var ok bool
		if r.ExpiresAt, _, ok = jsontext.Time([]byte(expires)); !ok {
			d.add((*place)(nil).member("expiresAt"), "is %s: a time of RFC 3339 is expected, such as 2026-11-30T12:00:00Z", quote(expires))
		}
	}
	missing := map[string]bool{} // Their absence and type are reported already.
	for _, f := range d.list {
		missing[f.Path] = true
	}
	for _, f := range r.faults() {
		if !missing[f.Path] {
			d.list = append(d.list, f)
		}
	}
	if err := d.err(whatRef); err != nil {
		return Ref{}, err
	}
	return r, nil
}

// Validate lists every fault of a reference in an *InvalidError.
func (r Ref) Validate() error {
	f := faults{list: r.faults()}
	return f.err(whatRef)
}

// faults checks the values of the fields.
func (r Ref) faults() []Fault {
	var f faults
	check := func(name, fault string) {
		if fault != "" {
			f.add((*place)(nil).member(name), "%s", fault)
		}
	}
	check("uri", uriFault(r.URI))
	check("sha256", digestFault(r.SHA256))
	check("schemaVersion", versionFault(r.SchemaVersion))
	check("planId", contract.NameFault(r.PlanID))
	check("planVersion", contract.NameFault(r.PlanVersion))
	if r.SizeBytes < 0 || r.SizeBytes > MaxBytes {
		check("sizeBytes", fmt.Sprintf("is %d: a plan has at most %d bytes", r.SizeBytes, MaxBytes))
	}
	switch r.Compression {
	case "", CompressionNone, CompressionGzip:
	default:
		check("compression", fmt.Sprintf("is %s: write gzip or none", quote(r.Compression)))
	}
	if !r.ExpiresAt.IsZero() && (r.ExpiresAt.Year() < 1970 || r.ExpiresAt.Year() > 9999) {
		check("expiresAt", "is not between the years 1970 and 9999")
	}
	if r.SchemaEvolutionPath != "" {
		check("schemaEvolutionPath", r.pathFault())
	}
	if h := r.MigrationHint; h != nil {
		hint := (*place)(nil).member("migrationHint")
		hintFaults(h, func(name, fault string) {
			if fault != "" {
				f.add(hint.member(name), "%s", fault)
			}
		})
	}
	return f.list
}

// Expired returns an *InvalidError if no run of the reference may begin any more. A run that has
// begun goes on: RefOf gives it a reference that does not expire.
func (r Ref) Expired(now time.Time) error {
	var f faults
	if !r.ExpiresAt.IsZero() && !now.Before(r.ExpiresAt) {
		f.add((*place)(nil).member("expiresAt"), "is in the past: %s: have the plan approved again", r.ExpiresAt.Format(time.RFC3339))
	}
	return f.err(whatRef)
}

// Key identifies references that a fetch gives the same answer for, unless they have expired
// (PLAN-7). So it has all fields but ExpiresAt, which a cache checks each time.
func (r Ref) Key() string {
	var hint any
	if r.MigrationHint != nil {
		hint = *r.MigrationHint
	}
	r.MigrationHint, r.ExpiresAt = nil, time.Time{}
	return fmt.Sprintf("%#v %#v", r, hint)
}

func (r Ref) pathFault() string {
	path, err := parsePath(r.SchemaEvolutionPath)
	if err != nil {
		return err.Error()
	}
	if v, err := ParseVersion(r.SchemaVersion); err == nil && (path[0].Major != v.Major || v.Less(path[0])) {
		return fmt.Sprintf("begins with %v, above the schemaVersion %v", path[0], v)
	}
	return ""
}

func hintFaults(h *MigrationHint, check func(name, fault string)) {
	check("sourceVersion", versionFault(h.SourceVersion))
	check("targetVersion", versionFault(h.TargetVersion))
	source, err := ParseVersion(h.SourceVersion)
	target, err2 := ParseVersion(h.TargetVersion)
	if err == nil && err2 == nil && target.Less(source) {
		check("targetVersion", "is below the sourceVersion")
	}
	if h.TransformScript != "" {
		check("transformScript", uriFault(h.TransformScript))
	}
}

func uriFault(uri string) string {
	if uri == "" {
		return "is required"
	}
	if kind, _ := secrets.Find([]byte(uri)); kind != "" {
		return fmt.Sprintf("looks like a secret (%s), and references are kept forever: configure credentials for the process", kind)
	}
	if why := blob.CheckURI(uri); why != "" {
		return "names no blob: " + why
	}
	return ""
}

func digestFault(digest string) string {
	for _, c := range []byte(digest) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return "is no digest: write SHA-256 as 64 digits of lower-case hex"
		}
	}
	if len(digest) != 64 {
		return "is no digest: write SHA-256 as 64 digits of lower-case hex"
	}
	return ""
}

// RefOf returns the reference by which an engine fetches the plan of a run. That of a run that has
// started does not expire: a run must not end in its midst because its plan may begin no others.
func RefOf(run *runlogv1.Run) Ref {
	p := run.GetPlanRef()
	r := Ref{
		URI: p.GetUri(), SHA256: p.GetSha256(), SchemaVersion: p.GetSchemaVersion(),
		PlanID: p.GetPlanId(), PlanVersion: p.GetPlanVersion(),
		SizeBytes: p.GetSizeBytes(), Compression: p.GetCompression(), SchemaEvolutionPath: p.GetSchemaEvolutionPath(),
	}
	if run.GetStartedAt() == nil {
		r.ExpiresAt, _, _ = jsontext.Time([]byte(p.GetExpiresAt())) // The server has checked it.
	}
	if h := p.GetMigrationHint(); h != nil {
		r.MigrationHint = &MigrationHint{h.GetSourceVersion(), h.GetTargetVersion(), h.GetTransformScript()}
	}
	return r
}

// Proto returns the reference as the API has it.
func (r Ref) Proto() *runlogv1.PlanRef {
	p := &runlogv1.PlanRef{
		Uri: r.URI, Sha256: r.SHA256, SchemaVersion: r.SchemaVersion, PlanId: r.PlanID, PlanVersion: r.PlanVersion,
	}
	if r.SizeBytes != 0 {
		p.SizeBytes = &r.SizeBytes
	}
	if r.Compression != "" {
		p.Compression = &r.Compression
	}
	if !r.ExpiresAt.IsZero() {
		p.ExpiresAt = new(r.ExpiresAt.UTC().Format(time.RFC3339Nano))
	}
	if r.SchemaEvolutionPath != "" {
		p.SchemaEvolutionPath = &r.SchemaEvolutionPath
	}
	if h := r.MigrationHint; h != nil {
		p.MigrationHint = &runlogv1.MigrationHint{SourceVersion: h.SourceVersion, TargetVersion: h.TargetVersion}
		if h.TransformScript != "" {
			p.MigrationHint.TransformScript = new(h.TransformScript)
		}
	}
	return p
}

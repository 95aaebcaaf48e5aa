package runner

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"

	"runlog/client"
	"runlog/engine/blob"
	"runlog/engine/plan"
	runlogv1 "runlog/proto/runlog/v1"
)

// maxManifest bounds a manifest in bytes.
const maxManifest = 4 << 20

// Manifest is a plan as operators write it (ATT-1).
type Manifest struct {
	Name string `json:"name"`
	// OnFailure is that of the plan: FAIL, which is the default, or WAIT.
	OnFailure string         `json:"on_failure,omitempty"`
	Steps     []ManifestStep `json:"steps"`
}

// ManifestStep is a step of a manifest. Its type is task, which is the default, or compute.
type ManifestStep struct {
	Key       string          `json:"step_key"`
	Type      string          `json:"step_type,omitempty"`
	DependsOn []string        `json:"depends_on,omitempty"`
	Executor  string          `json:"executor,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	Contract  json.RawMessage `json:"compute_contract,omitempty"`
}

// planStep is a step as plans have it.
type planStep struct {
	ID        string          `json:"stepId"`
	Type      string          `json:"type"`
	DependsOn []string        `json:"dependsOn,omitempty"`
	Inputs    json.RawMessage `json:"inputs,omitempty"`
	Contract  json.RawMessage `json:"computeContract,omitempty"`
}

// namespace is that of the ids of this package (RFC 9562, section 5.5).
var namespace = uuid.MustParse("8f0f53a2-6f0e-5f0a-9b1c-6a2f4f1d7c11")

// ManifestID names a manifest after its content.
func ManifestID(canonical []byte) string { return uuid.NewSHA1(namespace, canonical).String() }

// isManifestID reports whether a text has the form of a ManifestID.
func isManifestID(text string) bool {
	id, err := uuid.Parse(text)
	return err == nil && id.String() == text
}

// parseManifest reads a manifest, and returns it as a plan too.
func (r *Runner) parseManifest(body []byte) (id string, canonical []byte, planned []byte, err error) {
	var m Manifest
	own, err := decode(body, &m)
	if err != nil {
		return "", nil, nil, err
	}
	if m.Name == "" || len(m.Name) > 256 {
		own = append(own, plan.Fault{Path: "/name", Message: fmt.Sprintf("has %d bytes: write 1 to 256", len(m.Name))})
	}
	steps := make([]planStep, len(m.Steps))
	for i, s := range m.Steps {
		if string(s.Contract) == "null" { // The column of the seed document is nullable.
			m.Steps[i].Contract, s.Contract = nil, nil
		}
		steps[i] = planStep{s.Key, s.Executor, s.DependsOn, s.Input, s.Contract}
		at := fmt.Sprintf("/steps/%d", i)
		switch {
		case s.Type == "compute":
			if steps[i].Type = plan.Compute; s.Executor != "" {
				own = append(own, plan.Fault{Path: at + "/executor", Message: "is for task steps: a compute step has an executor in its contract"})
			}
		case s.Type != "" && s.Type != "task":
			own = append(own, plan.Fault{Path: at + "/step_type", Message: fmt.Sprintf("is %.100q: write task or compute", s.Type)})
			steps[i].Type = r.o.DefaultExecutor
		case s.Executor == "":
			steps[i].Type = r.o.DefaultExecutor
		}
	}
	if canonical, err = marshal(m); err != nil {
		return "", nil, nil, err
	}
	if len(canonical) > maxManifest {
		own = append(own, plan.Fault{Message: fmt.Sprintf("has %d bytes: at most %d are allowed", len(canonical), maxManifest)})
	}
	id = ManifestID(canonical)
	planned, err = marshal(struct {
		SchemaVersion string     `json:"schemaVersion"`
		PlanID        string     `json:"planId"`
		PlanVersion   string     `json:"planVersion"`
		OnFailure     string     `json:"onFailure,omitempty"`
		Steps         []planStep `json:"steps"`
	}{plan.Current().String(), id, "1", m.OnFailure, steps})
	if err != nil {
		return "", nil, nil, err
	}
	_, _, err = plan.Parse(planned, plan.Options{Capabilities: r.capabilities()})
	if invalid, ok := errors.AsType[*plan.InvalidError](err); ok {
		for _, f := range invalid.Faults {
			own = append(own, manifestFault(f))
		}
		err = nil
	}
	if len(own) > 0 {
		return "", nil, nil, &faultsError{own}
	}
	return id, canonical, planned, err
}

// marshal returns JSON without the escapes for HTML, which make a text up to six times as long.
func marshal(v any) ([]byte, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), err
}

// manifestFault is a fault of the plan of a manifest in the words of the manifest.
func manifestFault(f plan.Fault) plan.Fault {
	at := strings.Split(f.Path, "/") // "", steps, its index, the member of a step
	if f.Path == "/onFailure" {
		at[1] = "on_failure"
	}
	if len(at) > 3 && at[1] == "steps" {
		switch at[3] {
		case "stepId":
			at[3] = "step_key"
		case "type":
			at[3] = "executor"
		case "dependsOn":
			at[3] = "depends_on"
		case "inputs":
			at[3] = "input"
		case "computeContract":
			at[3] = "compute_contract"
		}
	}
	return plan.Fault{Path: strings.Join(at, "/"), Message: named.Replace(f.Message)}
}

// named has the names of manifests for those of plans.
var named = strings.NewReplacer("stepId", "step_key", "dependsOn", "depends_on", "inputs is", "input is", "computeContract", "compute_contract")

// errNoManifest means that there is no manifest by an id.
var errNoManifest = errors.New("there is no such manifest")

// manifests is the folder of the tenant's manifests. Its name fits into any store, as that of a
// tenant may not.
func (r *Runner) manifests() string { return r.o.Base + "/manifests/" + digestOf([]byte(r.o.Tenant)) }

func (r *Runner) manifestURI(id string) string { return r.manifests() + "/" + id + ".json" }

// admit refuses a caller that is not of the runner's tenant, or has none of some roles. Manifests
// are not in the log, so that the log does not decide about them.
func (r *Runner) admit(ctx context.Context, c *client.Client, roles ...runlogv1.Role_Value) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	who, err := c.WhoAmI(ctx)
	if err != nil {
		return err
	}
	has := func(role runlogv1.Role_Value) bool { return slices.Contains(who.GetRoles(), role) }
	if !slices.Contains(who.GetTenants(), "*") && !slices.Contains(who.GetTenants(), r.o.Tenant) || !slices.ContainsFunc(append(roles, runlogv1.Role_ADMIN), has) {
		return &httpError{http.StatusForbidden, fmt.Sprintf("the caller has no role of %v in the tenant of this runner: send another token", roles)}
	}
	return nil
}

// storeManifest stores a manifest and its plan. The same content again changes nothing, not even
// the time of the manifest.
func (r *Runner) storeManifest(ctx context.Context, id string, canonical, planned []byte) error {
	if err := r.put(ctx, r.planURI(planned), planned); err != nil {
		return err
	}
	if _, err := r.loadManifest(ctx, id); err == nil {
		return nil
	}
	return r.put(ctx, r.manifestURI(id), canonical)
}

func (r *Runner) put(ctx context.Context, uri string, body []byte) error {
	return r.o.Blobs.Put(ctx, uri, bytes.NewReader(body), int64(len(body)))
}

func (r *Runner) planURI(planned []byte) string {
	return r.o.Base + "/plans/" + digestOf(planned) + ".json"
}

func digestOf(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// loadManifest returns a stored manifest as it was canonicalised.
func (r *Runner) loadManifest(ctx context.Context, id string) ([]byte, error) {
	if !isManifestID(id) {
		return nil, errNoManifest
	}
	text, err := blob.ReadAll(ctx, r.o.Blobs, r.manifestURI(id), maxManifest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoManifest
	}
	if err == nil && ManifestID(text) != id {
		err = fmt.Errorf("the manifest %s was changed in its store: store the original again", id)
	}
	return text, err
}

// refOf stores the plan of a manifest, and returns its reference. The plan may be another one than
// that of an earlier build, or of a runner with another DefaultExecutor.
func (r *Runner) refOf(ctx context.Context, text []byte) (plan.Ref, error) {
	id, _, planned, err := r.parseManifest(text)
	if err == nil {
		err = r.put(ctx, r.planURI(planned), planned)
	}
	return plan.Ref{
		URI: r.planURI(planned), SHA256: digestOf(planned), SchemaVersion: plan.Current().String(), PlanID: id, PlanVersion: "1", SizeBytes: int64(len(planned)),
	}, err
}

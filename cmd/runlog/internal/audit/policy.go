package audit

import (
	"fmt"
	"strings"

	"runlog/audit/policy"
	"runlog/audit/proof"
	"runlog/client/command/output"
	"runlog/cmd/internal/policyfile"
)

// trust is what the user of verify trusts.
type trust struct {
	keys   []string
	since  *keptNote      // nil: no kept checkpoint is named
	policy *policy.Policy // nil: no witness is asked for
}

// readPolicy reads a policy; nil without a path.
func readPolicy(path string) (*policy.Policy, error) {
	if path == "" {
		return nil, nil
	}
	return policyfile.Read("policy", path)
}

// witnessed verifies that the witnesses of the policy have signed a checkpoint, and says which. It
// is empty without a policy.
func (t *trust) witnessed(path, note string) (string, error) {
	if t.policy == nil {
		return "", nil
	}
	r, err := t.policy.Verify(note, t.keys...)
	if err != nil {
		return "", output.Errorf(output.ExitRefused, "%s: %v", path, err)
	}
	var signed, missing []string
	for _, w := range r.Witnesses {
		if w.At.IsZero() {
			missing = append(missing, w.Name)
		} else {
			signed = append(signed, w.Name+" at "+proof.FormatTime(w.At.UnixNano()))
		}
	}
	if !r.Held {
		return "", output.Errorf(output.ExitRefused, "%s: the witnesses do not reach the quorum %q: signed by %s; not signed by %s", path,
			t.policy.Quorum, output.Words(strings.Join(signed, ", "), none(signed)), strings.Join(missing, ", "))
	}
	text := fmt.Sprintf("quorum %q holds", t.policy.Quorum)
	if len(signed) > 0 {
		text += "; signed by " + strings.Join(signed, ", ")
	}
	return text, nil
}

// none is a word for an empty list.
func none(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return ""
}

package policy

import (
	"fmt"
	"time"

	"runlog/audit/proof"
)

// Policy is a parsed policy.
type Policy struct {
	logs      []logKey
	witnesses []*node
	quorum    *node // nil: none
	// Quorum is the name in the quorum line.
	Quorum string
}

// logKey is a log that the policy accepts.
type logKey struct {
	cluster string // the key in its text form, under the name of the cluster
	// origin of the only incarnation that is accepted; empty: each.
	origin string
}

// node is a witness or a group.
type node struct {
	name    string
	key     *proof.WitnessKey // nil: a group
	url     string            // of a witness; empty: none is given
	least   int               // members of a group that have to witness
	members []*node
	grouped bool // it is a member of a group
}

// Keys returns the public keys of the policy's clusters, in their text form.
func (p *Policy) Keys() (keys []string) {
	for _, l := range p.logs {
		keys = append(keys, l.cluster)
	}
	return keys
}

// Endpoint is a witness that can be asked.
type Endpoint struct {
	// Name in the policy.
	Name string
	Key  *proof.WitnessKey
	// URL to which the paths of C2SP tlog-witness are added.
	URL string
}

// Endpoints returns the witnesses that have a URL, in the policy's order.
func (p *Policy) Endpoints() (list []Endpoint) {
	for _, w := range p.witnesses {
		if w.url != "" {
			list = append(list, Endpoint{w.name, w.key, w.url})
		}
	}
	return list
}

// Witness is a witness of the policy, and whether it cosigned.
type Witness struct {
	Name string
	Key  *proof.WitnessKey
	// At is the time of its cosignature, by its own clock; zero: it has not cosigned.
	At time.Time
}

// Result is what a checkpoint fulfils of a policy.
type Result struct {
	Checkpoint *proof.Checkpoint
	// Key of the cluster that signed it, in its text form.
	Key string
	// Witnesses of the policy, in its order.
	Witnesses []Witness
	// Held says that the witnesses that cosigned are a quorum.
	Held bool
}

// Verify verifies that a log of the policy signed a checkpoint, and the cosignatures of the
// policy's witnesses. A quorum that does not hold is no error. keys are further public keys of
// clusters that the caller trusts. Errors are those of proof.OpenCheckpoint and proof.Cosignatures.
func (p *Policy) Verify(note string, keys ...string) (*Result, error) {
	seen, _, err := proof.PeekCheckpoint(note)
	if err != nil {
		return nil, err
	}
	for _, l := range p.logs {
		if l.origin == "" || l.origin == seen.Origin() {
			keys = append(keys[:len(keys):len(keys)], l.cluster)
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%w: no log of the policy is %s", proof.ErrUnknownKey, seen.Origin())
	}
	r := &Result{}
	if r.Checkpoint, r.Key, err = proof.OpenCheckpoint(note, keys...); err != nil {
		return nil, err
	}
	var of []*proof.WitnessKey
	for _, w := range p.witnesses {
		of = append(of, w.key)
	}
	found, err := proof.Cosignatures(note, of...)
	if err != nil {
		return nil, err
	}
	at := map[*proof.WitnessKey]time.Time{}
	for _, c := range found {
		at[c.Key] = c.At
	}
	for _, w := range p.witnesses {
		r.Witnesses = append(r.Witnesses, Witness{w.name, w.key, at[w.key]})
	}
	r.Held = p.quorum == nil || p.quorum.witnessed(at)
	return r, nil
}

// witnessed reports whether a witness cosigned, or enough members of a group.
func (n *node) witnessed(at map[*proof.WitnessKey]time.Time) bool {
	if n.key != nil {
		return !at[n.key].IsZero()
	}
	have := 0
	for _, m := range n.members {
		if m.witnessed(at) {
			have++
		}
	}
	return have >= n.least
}

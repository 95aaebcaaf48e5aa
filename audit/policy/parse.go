package policy

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"runlog/audit/proof"
)

// MaxText bounds a policy, in bytes.
const MaxText = 1 << 20

const (
	// maxLines bounds the log, witness and group lines of each kind.
	maxLines = 256
	// maxFaults bounds the faults that an error lists.
	maxFaults = 20
	noQuorum  = "none"
)

// ErrPolicy means that a text is no policy.
var ErrPolicy = errors.New("policy: the text is no policy")

// LineError is a fault of a line.
type LineError struct {
	Line  int // from 1
	Fault string
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Fault) }

// Parse parses a policy. The error is ErrPolicy and has a *LineError for each line with a fault.
func Parse(text []byte) (*Policy, error) {
	if len(text) > MaxText {
		return nil, fmt.Errorf("%w: it has more than %d bytes", ErrPolicy, MaxText)
	}
	p := parser{policy: &Policy{}, nodes: map[string]*node{}}
	var faults []error
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		if err := p.line(line); err != nil {
			faults = append(faults, &LineError{number, err.Error()})
		}
		if len(faults) == maxFaults {
			break
		}
	}
	if p.policy.Quorum == "" && len(faults) == 0 {
		faults = append(faults, &LineError{number + 1, `there is no quorum line: end with "quorum NAME" or "quorum none"`})
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("%w: %w", ErrPolicy, errors.Join(faults...))
	}
	return p.policy, nil
}

type parser struct {
	policy *Policy
	nodes  map[string]*node
	groups int
}

// line parses a line with its line feed.
func (p *parser) line(line string) error {
	text, whole := strings.CutSuffix(line, "\n")
	if !whole {
		return errors.New("it does not end in a line feed")
	}
	if at := strings.IndexFunc(text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }); at >= 0 {
		return fmt.Errorf("it has the control character %q", text[at])
	}
	if !utf8.ValidString(text) {
		return errors.New("it is not UTF-8")
	}
	words := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == '\t' })
	if len(words) == 0 || strings.HasPrefix(words[0], "#") {
		return nil
	}
	switch args := words[1:]; words[0] {
	case "log":
		return p.log(args)
	case "witness":
		return p.witness(args)
	case "group":
		return p.group(args)
	case "quorum":
		return p.quorum(args)
	default:
		return fmt.Errorf("%q is none of log, witness, group and quorum", words[0])
	}
}

func (p *parser) log(args []string) error {
	if len(args) < 1 || len(args) > 2 {
		return errors.New("a log line is of the form: log KEY [URL]")
	}
	if len(p.policy.logs) >= maxLines {
		return fmt.Errorf("there are more than %d logs", maxLines)
	}
	l, err := parseLog(args[0])
	if err != nil {
		return err
	}
	if slices.ContainsFunc(p.policy.logs, func(o logKey) bool { return raw(o.cluster) == raw(l.cluster) }) {
		return errors.New("the key of the log is that of a log before")
	}
	p.policy.logs = append(p.policy.logs, l)
	return nil
}

// raw returns the key in a text form, without its name and id.
func raw(key string) string {
	parts := strings.SplitN(key, "+", 3)
	return parts[len(parts)-1]
}

// parseLog parses the key of a cluster, which stands for all its incarnations, or that of one
// incarnation, whose name is the origin.
func parseLog(key string) (logKey, error) {
	if _, err := proof.KeyID(key); err != nil {
		return logKey{}, err
	}
	if _, ok := proof.ClusterOf(key); ok {
		return logKey{cluster: key}, nil
	}
	origin, _, _ := strings.Cut(key, "+")
	cluster, _, ok := proof.ParseOrigin(origin)
	if !ok {
		return logKey{}, fmt.Errorf("%q is no log of a runlog cluster", origin)
	}
	text, err := base64.StdEncoding.DecodeString(raw(key))
	if err != nil {
		return logKey{}, err
	}
	own, err := proof.PublicKey(cluster, text[1:]) // without the algorithm, which KeyID has seen
	return logKey{own, origin}, err
}

func (p *parser) witness(args []string) error {
	if len(args) < 2 || len(args) > 3 {
		return errors.New("a witness line is of the form: witness NAME KEY [URL]")
	}
	if len(p.policy.witnesses) >= maxLines {
		return fmt.Errorf("there are more than %d witnesses", maxLines)
	}
	key, err := proof.ParseWitnessKey(args[1])
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(p.policy.witnesses, func(w *node) bool { return w.key.Same(key) }); i >= 0 {
		return fmt.Errorf("the key of witness %q is that of witness %q", args[0], p.policy.witnesses[i].name)
	}
	w := &node{name: args[0], key: key}
	if len(args) > 2 {
		if w.url, err = parseURL(args[2]); err != nil {
			return err
		}
	}
	if err := p.define(w); err != nil {
		return err
	}
	p.policy.witnesses = append(p.policy.witnesses, w)
	return nil
}

// parseURL checks the address to which the paths of a witness are added.
func parseURL(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("%q is no address of the form https://HOST/PATH", text)
	}
	return text, nil
}

// define takes a name.
func (p *parser) define(n *node) error {
	if n.name == noQuorum {
		return fmt.Errorf("the name %q has a meaning of its own", noQuorum)
	}
	if p.nodes[n.name] != nil {
		return fmt.Errorf("the name %q is defined before", n.name)
	}
	p.nodes[n.name] = n
	return nil
}

func (p *parser) group(args []string) error {
	const fixed = 2
	if len(args) <= fixed {
		return errors.New("a group line is of the form: group NAME any|all|K MEMBERS")
	}
	if p.groups++; p.groups > maxLines {
		return fmt.Errorf("there are more than %d groups", maxLines)
	}
	g := &node{name: args[0]}
	for _, name := range args[fixed:] {
		m := p.nodes[name]
		switch {
		case m == nil:
			return fmt.Errorf("no line before defines the member %q", name)
		case m.grouped || slices.Contains(g.members, m):
			return fmt.Errorf("%q is already a member of a group, and can count once only", name)
		}
		g.members = append(g.members, m)
	}
	var err error
	if g.least, err = threshold(args[1], len(g.members)); err != nil {
		return err
	}
	if err := p.define(g); err != nil {
		return err
	}
	for _, m := range g.members {
		m.grouped = true
	}
	return nil
}

// threshold returns how many of the members have to witness.
func threshold(text string, members int) (int, error) {
	switch text {
	case "any":
		return 1, nil
	case "all":
		return members, nil
	}
	k, err := strconv.Atoi(text)
	if err != nil || strconv.Itoa(k) != text {
		return 0, fmt.Errorf("%q is none of any, all and a number", text)
	}
	if k < 1 || k > members {
		return 0, fmt.Errorf("%d of %d members cannot be reached, or are none", k, members)
	}
	return k, nil
}

func (p *parser) quorum(args []string) error {
	switch {
	case len(args) != 1:
		return errors.New("a quorum line is of the form: quorum NAME|none")
	case p.policy.Quorum != "":
		return errors.New("there is a quorum line before")
	case args[0] != noQuorum && p.nodes[args[0]] == nil:
		return fmt.Errorf("no line before defines %q", args[0])
	}
	p.policy.Quorum, p.policy.quorum = args[0], p.nodes[args[0]]
	return nil
}

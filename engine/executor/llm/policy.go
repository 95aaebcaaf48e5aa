package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"runlog/proto/contract/secrets"
)

// Policy decides whether an answer may become an output. It is safe for concurrent use.
type Policy interface {
	// Check returns nil, a *Violation, or another error if it cannot decide.
	Check(ctx context.Context, text string) error
}

// Violation says which rule an answer breaks. It has nothing of the answer.
type Violation struct {
	// Rule is maxChars, forbidden, jsonSchema or secrets, or one of another Policy.
	Rule   string
	Detail string
}

// Error returns the rule and the detail.
func (v *Violation) Error() string {
	return "llm: the answer breaks the rule " + v.Rule + ": " + v.Detail
}

// RulesOptions are the rules of a Rules. The zero value has none.
type RulesOptions struct {
	// MaxChars bounds the answer in characters. 0: no bound.
	MaxChars int `json:"maxChars"`
	// Forbidden are regular expressions (RE2) that the answer must not match.
	Forbidden []string `json:"forbidden"`
	// JSONSchema is what the answer must be, as JSON. References lead nowhere but into itself.
	JSONSchema json.RawMessage `json:"jsonSchema"`
	// Secrets refuses answers that have what looks like a credential.
	Secrets bool `json:"secrets"`
}

const (
	maxForbidden  = 100
	maxExpression = 1000 // bytes
	maxSchema     = 64 << 10
)

// Rules is the built-in Policy.
type Rules struct {
	maxChars  int
	forbidden []*regexp.Regexp
	schema    *jsonschema.Schema // nil: the answer may be any text
	secrets   bool
}

var _ Policy = (*Rules)(nil)

// NewRules checks and compiles the rules, and reports every fault.
func NewRules(o RulesOptions) (*Rules, error) {
	rules := &Rules{maxChars: o.MaxChars, secrets: o.Secrets}
	var faults []error
	if o.MaxChars < 0 {
		faults = append(faults, errors.New("llm: maxChars is less than 0"))
	}
	if len(o.Forbidden) > maxForbidden {
		faults = append(faults, fmt.Errorf("llm: there are %d forbidden expressions, at most %d", len(o.Forbidden), maxForbidden))
		o.Forbidden = nil
	}
	for i, text := range o.Forbidden {
		if len(text) > maxExpression {
			faults = append(faults, fmt.Errorf("llm: the forbidden expression %d has %d bytes, at most %d", i+1, len(text), maxExpression))
			continue
		}
		expression, err := regexp.Compile(text)
		if err != nil {
			faults = append(faults, fmt.Errorf("llm: the forbidden expression %d is malformed: %w", i+1, err))
			continue
		}
		rules.forbidden = append(rules.forbidden, expression)
	}
	if len(o.JSONSchema) > 0 {
		var err error
		if rules.schema, err = compile(o.JSONSchema); err != nil {
			faults = append(faults, err)
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return rules, nil
}

const schemaURL = "mem:///policy.json"

// noLoader keeps schemas from files and servers.
type noLoader struct{}

func (noLoader) Load(string) (any, error) {
	return nil, errors.New("the schema refers to another one: put it below $defs")
}

func compile(text []byte) (*jsonschema.Schema, error) {
	if len(text) > maxSchema {
		return nil, fmt.Errorf("llm: jsonSchema has %d bytes, at most %d", len(text), maxSchema)
	}
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("llm: jsonSchema is no JSON: %w", err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(noLoader{})
	if err := compiler.AddResource(schemaURL, parsed); err != nil {
		return nil, fmt.Errorf("llm: jsonSchema cannot be read: %w", err)
	}
	schema, err := compiler.Compile(schemaURL)
	if err != nil {
		return nil, fmt.Errorf("llm: jsonSchema cannot be compiled: %w", err)
	}
	return schema, nil
}

// Check returns the first rule that the answer breaks.
func (r *Rules) Check(_ context.Context, text string) error {
	if n := utf8.RuneCountInString(text); r.maxChars > 0 && n > r.maxChars {
		return &Violation{"maxChars", fmt.Sprintf("it has %d characters, at most %d", n, r.maxChars)}
	}
	for i, expression := range r.forbidden {
		if expression.MatchString(text) {
			return &Violation{"forbidden", fmt.Sprintf("it matches expression %d", i+1)}
		}
	}
	if r.secrets {
		if kind, at := secrets.FindJSON([]byte(text)); kind != "" {
			return &Violation{"secrets", fmt.Sprintf("it has what looks like a secret (%s) at byte %d", kind, at)}
		}
	}
	if r.schema == nil {
		return nil
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return &Violation{"jsonSchema", "it is no JSON"}
	}
	if err := r.schema.Validate(value); err != nil {
		return &Violation{"jsonSchema", "it fails at " + keyword(err)}
	}
	return nil
}

// keyword returns the place in the schema that an error is about. The text of the error would have
// values of the answer.
func keyword(err error) string {
	fault, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return "its validation"
	}
	for len(fault.Causes) > 0 {
		fault = fault.Causes[0]
	}
	return strings.TrimPrefix(fault.SchemaURL, schemaURL) + "/" + strings.Join(fault.ErrorKind.KeywordPath(), "/")
}

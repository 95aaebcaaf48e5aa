package secret

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// Env resolves env:NAME to environment variables of the worker.
type Env struct {
	prefixes map[Scope]string
	own      bool
	lookup   func(name string) (string, bool)
}

// NewEnv returns an Env for steps: NAME is the variable whose name is NAME behind the prefix of the
// run's scope, such as SECRET_. Other runs have no variables. No prefix may be empty or begin
// another one: its runs would reach more than their own variables. lookup is os.LookupEnv unless it
// is set.
func NewEnv(prefixes map[Scope]string, lookup func(name string) (string, bool)) (*Env, error) {
	var all []string
	for scope, prefix := range prefixes {
		if scope.TenantID == "" || scope.EnvironmentID == "" {
			return nil, errors.New("secret: a prefix of variables has no tenant or no environment: name both")
		}
		if !isVariable(prefix) {
			return nil, fmt.Errorf("secret: the prefix %.100q is no name of a variable: write letters, digits and _, such as SECRET_", prefix)
		}
		all = append(all, prefix)
	}
	slices.Sort(all) // Behind a prefix that begins others is one of them.
	for i, prefix := range all {
		if i > 0 && strings.HasPrefix(prefix, all[i-1]) {
			return nil, fmt.Errorf("secret: the prefix %s begins with %s, which is that of another tenant or environment: choose another one", prefix, all[i-1])
		}
	}
	return &Env{prefixes: maps.Clone(prefixes), lookup: lookup}, nil
}

// OwnEnv returns an Env for the secrets of the worker itself: NAME is the variable NAME. No plan
// must reach it.
func OwnEnv(lookup func(name string) (string, bool)) *Env { return &Env{own: true, lookup: lookup} }

// Resolve reads the variables.
func (e *Env) Resolve(ctx context.Context, refs []string, scope Scope) (*Set, error) {
	lookup := e.lookup
	if lookup == nil {
		lookup = os.LookupEnv
	}
	prefix := e.prefixes[scope]
	return each(ctx, refs, func(ref, name string) (string, error) {
		if !isVariable(name) {
			return "", &Error{ref, ErrReference, "the name of a variable has letters, digits and _ only"}
		}
		if prefix == "" && !e.own {
			return "", &Error{ref, ErrDenied, fmt.Sprintf(
				"the worker has no variables for tenant %.100q in environment %.100q: let its operator name their prefix", scope.TenantID, scope.EnvironmentID)}
		}
		value, ok := lookup(prefix + name)
		if !ok {
			return "", notFound(ref, "set the variable "+prefix+name+" of the worker")
		}
		return value, nil
	})
}

func isVariable(name string) bool {
	for i := range len(name) {
		if c := name[i]; c == '.' || c == '-' || !isNameByte(c) {
			return false
		}
	}
	return name != ""
}

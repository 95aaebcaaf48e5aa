package secret

import (
	"context"
	"os"
)

// Env resolves env:NAME to environment variables of the worker. All tenants have the same ones, so
// a worker of several tenants needs another provider.
type Env struct {
	// Prefix stands before the names, such as RUNLOG_SECRET_. Plans reach no other variables.
	Prefix string
	// Lookup is os.LookupEnv unless it is set.
	Lookup func(name string) (string, bool)
}

// Resolve reads the variables.
func (e Env) Resolve(ctx context.Context, refs []string, _ Scope) (*Set, error) {
	lookup := e.Lookup
	if lookup == nil {
		lookup = os.LookupEnv
	}
	return each(ctx, refs, func(ref, name string) (string, error) {
		if !isVariable(name) {
			return "", &Error{ref, ErrReference, "the name of a variable has letters, digits and _ only"}
		}
		value, ok := lookup(e.Prefix + name)
		if !ok {
			return "", notFound(ref, "set the variable "+e.Prefix+name+" of the worker")
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

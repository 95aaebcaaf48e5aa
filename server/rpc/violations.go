package rpc

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"runlog/proto/contract"
	"runlog/server/auth"
)

// Violations gathers what is wrong with a request.
type Violations []contract.Violation

// Add adds the fault of a field; an empty one is none.
func (v *Violations) Add(field, fault string) {
	if fault != "" {
		*v = append(*v, contract.Violation{Field: field, Reason: contract.ReasonInvalidArgumentField, Description: fault})
	}
}

// Has reports whether a field has a fault.
func (v Violations) Has(field string) bool {
	for i := range v {
		if v[i].Field == field {
			return true
		}
	}
	return false
}

// Err returns the error that has all faults; nil: there is none.
func (v Violations) Err() error {
	if len(v) == 0 {
		return nil
	}
	return contract.NewError(v)
}

// Duration checks a duration, and returns it; absent: the standard.
func (v *Violations) Duration(field string, d *durationpb.Duration, least, most, standard time.Duration) time.Duration {
	if d == nil {
		return standard
	}
	if !d.IsValid() || d.AsDuration() < least || d.AsDuration() > most {
		v.Add(field, fmt.Sprintf("is %v: send a duration from %v to %v", d.AsDuration(), least, most))
	}
	return d.AsDuration()
}

// TenantOf returns the tenant of a caller that names none; empty: all, or it must name one.
func TenantOf(i *auth.Identity) (tenant, fault string) {
	switch {
	case i == nil || i.Tenants.All:
		return "", ""
	case len(i.Tenants.Names) == 1:
		return i.Tenants.Names[0], ""
	case len(i.Tenants.Names) == 0:
		return "", "is required, and " + i.Name + " has no tenant: ask an admin of the cluster"
	default:
		return "", "is required: " + i.Name + " has several tenants; name one of " + strings.Join(i.Tenants.Names, ", ")
	}
}

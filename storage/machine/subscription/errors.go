package subscription

import (
	"fmt"
	"strings"
)

// NotFoundError says that there is no subscription by a name.
type NotFoundError struct{ Name Name }

func (e *NotFoundError) Error() string { return fmt.Sprintf("there is no subscription %s", e.Name) }

// ConflictError says that a name is taken by a subscription with other settings (BUS-2).
type ConflictError struct {
	Name Name
	// Fields in which the settings differ, as the API names them, such as filter.types.
	Fields []string
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("subscription %s differs in %s", e.Name, strings.Join(e.Fields, ", "))
}

// TooManyError says that a tenant has as many subscriptions as it may have.
type TooManyError struct{ Tenant string }

func (e *TooManyError) Error() string {
	whose := fmt.Sprintf("tenant %q has", e.Tenant)
	if e.Tenant == "" {
		whose = "there are"
	}
	return fmt.Sprintf("%s %d subscriptions, as many as allowed: delete one of them", whose, MaxSubscriptions)
}

// VersionError says that an Update was proposed for another state of the subscription than it is
// in. The proposer reads it again and decides again.
type VersionError struct {
	Name Name
	// Those of the subscription now.
	Number, Version uint64
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("subscription %s has changed and is at version %d: read it again and retry", e.Name, e.Version)
}

// DeadLetterNotFoundError says that a subscription has no dead letter of an event.
type DeadLetterNotFoundError struct {
	Name  Name
	Place Place
}

func (e *DeadLetterNotFoundError) Error() string {
	return fmt.Sprintf("subscription %s has no dead letter of runSeq %d of run %q", e.Name, e.Place.RunSeq, e.Place.RunID)
}

package subscriptions

import (
	"errors"
	"strconv"
	"strings"

	"runlog/proto/contract"
	"runlog/server/rpc"
	"runlog/server/subscriptions/delivery"
	"runlog/storage/machine/subscription"
)

// refusal converts an error of the machine, or of package delivery, into one with a reason.
func refusal(err error) error {
	var (
		missing  *subscription.NotFoundError
		conflict *subscription.ConflictError
		many     *subscription.TooManyError
		letter   *subscription.DeadLetterNotFoundError
	)
	switch {
	case errors.As(err, &missing):
		return notFound(missing.Name)
	case errors.As(err, &conflict):
		return refused(contract.ReasonSubscriptionConflict, conflict, "subscription_id", conflict.Name.ID, "fields", strings.Join(conflict.Fields, ","))
	case errors.As(err, &many):
		return &contract.Error{Reason: contract.ReasonQuotaExceeded, Message: many.Error(),
			Metadata: map[string]string{"limit": strconv.Itoa(subscription.MaxSubscriptions)}}
	case errors.As(err, &letter):
		return refused(contract.ReasonDeadLetterNotFound, letter)
	case errors.Is(err, delivery.ErrNotLeader):
		return leaderChanged()
	case errors.Is(err, delivery.ErrHeld):
		return rpc.Held("no event is delivered")
	default:
		return err
	}
}

func leaderChanged() error {
	return &contract.Error{Reason: contract.ReasonNoLeader, Message: "the leadership has changed: send the request again"}
}

// refusalOf is refusal for a consumer of a subscription, which may be deleted meanwhile.
func refusalOf(n subscription.Name, err error) error {
	if errors.Is(err, delivery.ErrDeleted) {
		return notFound(n)
	}
	return refusal(err)
}

// notFound refuses a call about a subscription that does not exist, or is another tenant's (SEC-4).
func notFound(n subscription.Name) error {
	return refused(contract.ReasonSubscriptionNotFound, &subscription.NotFoundError{Name: n}, "subscription_id", n.ID)
}

// refused makes the error of a reason; pairs are the names and values of its metadata.
func refused(reason contract.Reason, why error, pairs ...string) *contract.Error {
	e := &contract.Error{Reason: reason, Message: rpc.Helpful(reason, why.Error()), Metadata: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		e.Metadata[pairs[i]] = pairs[i+1]
	}
	return e
}

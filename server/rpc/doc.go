// Package rpc is what all services share between the wire and their own code: the chain of
// interceptors, the table of methods, forwarding to the leader, errors and tokens.
//
//	gRPC ──► Chain: decode, in flight, metrics, Status, forward to the leader ──► Service.Impl
//
// A service registers as a [Service]. [NewMethods] reads the policy of each method from its
// descriptor, and refuses a method without one. There is one [Chain] per listener, for clients and
// for other members alike.
//
// Invariants:
//
//   - [Status] alone turns the errors of the packages below into gRPC statuses. [WriteError] writes
//     a status as an HTTP answer.
//   - A call is forwarded once at most.
//   - A token begins with its kind. A token of a [TokenDomain] also has a check over its use and
//     its cluster, so that a token of another use or cluster is refused.
package rpc

package rpc

import (
	"testing"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// TestUnknownFieldsOfForwardedCallsENV11: a member that forwards an event has taken a field that
// this node does not know. The event is refused until the cluster is upgraded, and not for good. A
// read is answered without the field.
func TestUnknownFieldsOfForwardedCallsENV11(t *testing.T) {
	methods, err := NewMethods([]*Service{{Desc: &runlogv1.EventService_ServiceDesc}})
	if err != nil {
		t.Fatal(err)
	}
	bad := []contract.Violation{{Field: "events[0].9000", Reason: contract.ReasonInvalidArgumentField, Description: "is unknown"}}
	for caller, want := range map[string]contract.Reason{CallerClient: contract.ReasonInvalidArgumentField, CallerMember: contract.ReasonUpgradeIncomplete} {
		c := NewChain(ChainOptions{Caller: caller, Methods: methods})
		for _, write := range []string{runlogv1.EventService_AppendEvents_FullMethodName, runlogv1.EventService_AppendStream_FullMethodName} {
			if e := c.unknown(write)(bad); e.Reason != want || e.Reason.Info().Stored != contract.StoredNo {
				t.Errorf("%s of a %s: %v, want %s", write, caller, e, want)
			}
		}
		for _, read := range []string{runlogv1.EventService_ListEvents_FullMethodName, "/grpc.health.v1.Health/Check"} {
			if c.unknown(read) != nil {
				t.Errorf("%s of a %s is refused", read, caller)
			}
		}
	}
}

package rpc

import (
	"google.golang.org/protobuf/types/known/timestamppb"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc/wire"
	"runlog/storage"
)

// Applied returns how far the answering node had applied the log (READ-2).
func Applied(at storage.Applied) *runlogv1.AppliedState {
	return &runlogv1.AppliedState{Position: FormatPosition(at.Incarnation, at.Position()), PersistedAt: wire.Timestamp(at.PersistedAt)}
}

// Bound converts a time of a request to nanoseconds since 1970; 0: not set.
func Bound(field string, t *timestamppb.Timestamp) (int64, error) {
	ns, ok := wire.Bound(t)
	if !ok {
		return 0, Invalid(field, "is not a time between 1970 and 2262")
	}
	return ns, nil
}

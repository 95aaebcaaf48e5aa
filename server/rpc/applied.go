package rpc

import (
	"google.golang.org/protobuf/types/known/timestamppb"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc/wire"
	"runlog/storage"
)

// Applied tells how far the node was that answers (READ-2).
func Applied(at storage.Applied) *runlogv1.AppliedState {
	return &runlogv1.AppliedState{Position: FormatPosition(at.Position()), PersistedAt: wire.Timestamp(at.PersistedAt)}
}

// Bound reads a time out of a field of a request: nanoseconds after 1970, 0 where it is not set.
func Bound(field string, t *timestamppb.Timestamp) (int64, error) {
	ns, ok := wire.Bound(t)
	if !ok {
		return 0, Invalid(field, "is not a time between 1970 and 2262")
	}
	return ns, nil
}

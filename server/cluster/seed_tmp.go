package cluster

import (
	"context"
	"errors"

	"google.golang.org/grpc"

	nodev1 "runlog/proto/node/v1"
	"runlog/storage"
)

type seedSource struct{}

func newSeedSource(func(bool)) *seedSource { return &seedSource{} }
func (*seedSource) open(context.Context, *storage.Store, *nodev1.OpenCheckpointRequest) (*nodev1.OpenCheckpointResponse, error) {
	return nil, errDown
}
func (*seedSource) read(*nodev1.ReadCheckpointRequest, grpc.ServerStreamingServer[nodev1.ReadCheckpointResponse]) error {
	return errDown
}
func (*seedSource) forget(*nodev1.CloseCheckpointRequest) (*nodev1.CloseCheckpointResponse, error) {
	return nil, errDown
}
func (*seedSource) close() {}

// EnsureState gives a node the cluster's state that lacks it.
func (c *Cluster) EnsureState(ctx context.Context, store *storage.Store) error {
	k, err := c.NeedsState(ctx, store.Applied().Index)
	if err == nil && k != nil {
		err = errors.New("seeding is not there")
	}
	return err
}

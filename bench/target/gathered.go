package target

import (
	"context"

	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
)

var _ Gatherer = (*Remote)(nil)

// gathered is a node through an Appender.
type gathered struct{ *client.Appender }

// OpenGathered starts an Appender.
func (r *Remote) OpenGathered() (Target, error) {
	a, err := r.link().client.NewAppender(client.AppenderOptions{})
	if err != nil {
		return nil, err
	}
	return gathered{a}, nil
}

// Append calls AppendRequest.
func (g gathered) Append(ctx context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	res, err := g.AppendRequest(ctx, req)
	if err != nil {
		return nil, err
	}
	return &runlogv1.AppendEventsResponse{Results: res.Events, LastSeq: res.LastSeq, Position: res.Position}, nil
}

// Close ends the Appender.
func (g gathered) Close() error {
	g.Appender.Close()
	return nil
}

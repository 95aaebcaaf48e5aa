package audit

import (
	"context"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/storage"
)

// reachTree waits until the tree has the log up to a position, and refuses a size that the tree
// does not have. 0: the caller wants no proofs.
func (s *Service) reachTree(ctx context.Context, at storage.Position, size uint64) error {
	if size == 0 {
		return nil
	}
	_, err := s.included(ctx, at, size, nil)
	return err
}

// exportProofs proves that the events of messages are in the tree.
type exportProofs struct {
	s    *Service
	size uint64 // 0: nothing is proved
	// Of the events of the message that is being made.
	leaves   []contract.Leaf
	previous []contract.Digest
}

// add takes the records of the message.
func (p *exportProofs) add(records []storage.Record) {
	if p.size == 0 {
		return
	}
	for i := range records {
		p.leaves, p.previous = append(p.leaves, records[i].Leaf()), append(p.previous, records[i].Previous)
	}
}

// end proves the events of the message, and begins the next.
func (p *exportProofs) end(ctx context.Context, m *runlogv1.ExportEventsResponse) (err error) {
	if len(p.leaves) == 0 {
		return nil
	}
	if m.Places, err = p.s.included(ctx, storage.Position(p.leaves[len(p.leaves)-1].Position), p.size, p.leaves); err != nil {
		return err
	}
	for i := range m.Places.Indexes {
		m.Places.Previous = append(m.Places.Previous, p.previous[i][:]...)
	}
	p.leaves, p.previous = p.leaves[:0], p.previous[:0]
	return nil
}

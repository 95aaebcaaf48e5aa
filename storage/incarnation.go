package storage

import (
	"crypto/rand"
	"fmt"

	"google.golang.org/protobuf/proto"

	recordv1 "runlog/proto/record/v1"
	"runlog/storage/internal/record"
)

// NewIncarnation returns a log entry that begins another incarnation of the store's cluster. It
// belongs behind a log whose end is not that of every log before, so that what the callers have
// kept is not taken for a place in this one (READ-7).
func (s *Store) NewIncarnation() ([]byte, error) {
	var id Incarnation
	_, _ = rand.Read(id[:]) // It never fails.
	data, err := record.Marshal(&recordv1.BeginIncarnation{Incarnation: id[:]})
	if err != nil {
		return nil, err
	}
	c, err := EncodeCommand(Operation{Kind: record.KindBeginIncarnation, Data: data})
	if err != nil {
		return nil, err
	}
	p := NewProposal(s.opts.Cluster, c.Size())
	p.Add(c)
	return p.Seal(0), nil // The stamp is the next one, whatever the clock of this machine says.
}

// beginIncarnation applies a BeginIncarnation.
func (a *applyTx) beginIncarnation(data []byte) (fatal error) {
	var m recordv1.BeginIncarnation
	if err := proto.Unmarshal(data, &m); err != nil {
		return fmt.Errorf("%w: %w", record.ErrCommand, err)
	}
	if len(m.Incarnation) != len(a.incarnation) {
		return fmt.Errorf("%w: incarnation of %d bytes", record.ErrCommand, len(m.Incarnation))
	}
	a.incarnation = Incarnation(m.Incarnation)
	// The log may lack leases that a lost node had: no fence of before counts any more (QUE-8). A
	// run that is loaded later gets the first fence then (activeRun). The operation is alone in its
	// command, so that nothing of this is undone.
	a.fencesAbove = record.FencesAfter(a.previous.FencesAbove, m.Incarnation)
	raised := Applied{FencesAbove: a.fencesAbove}
	for _, r := range a.s.active.runs {
		r.head.Fence = raised.Fence(r.head.Fence)
	}
	return nil
}

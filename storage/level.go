package storage

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	recordv1 "runlog/proto/record/v1"
	"runlog/storage/internal/keys"
	"runlog/storage/internal/record"
)

// The feature level says which operations every member of the cluster can apply. It is 1 until a
// command raises it, and never falls.
//
//	build of a member    supports levels up to Options.FeatureLevel
//	leader               raises the level once every member supports the next one
//	Store.CheckLevel     keeps what the level does not know out of the log
//	Apply                refuses it too, and stops the node at what the build does not know
//
// So a log never has an operation that a member cannot apply, whatever the order in which members
// are upgraded.

// LevelError says that an operation was not proposed, or has no effect, because a member may not
// know it.
type LevelError struct {
	Kind  uint32
	Needs uint32
	Level uint32 // of the cluster
}

func (e *LevelError) Error() string {
	return fmt.Sprintf("operation of kind %d needs feature level %d, the cluster is at level %d; "+
		"upgrade the members that run an older build (runlog cluster status lists them)", e.Kind, e.Needs, e.Level)
}

// RaiseError says that the feature level was not raised: it is there already, or the members are
// not those any more that were asked.
type RaiseError struct {
	Level, Given          uint32
	Members, GivenMembers uint64 // log indexes
}

func (e *RaiseError) Error() string {
	if e.Given <= e.Level {
		return fmt.Sprintf("the feature level was not raised to %d: it is %d already", e.Given, e.Level)
	}
	return fmt.Sprintf("the feature level was not raised to %d: "+
		"the members have changed in entry %d, and were asked as of entry %d; ask them again",
		e.Given, e.Members, e.GivenMembers)
}

// RaiseLevel is the operation that raises the feature level. members is Membership.Index of the
// members that support it. It is refused with a *RaiseError.
func RaiseLevel(level uint32, members uint64) (Operation, error) {
	data, err := record.Marshal(&recordv1.RaiseLevel{Level: level, MembersIndex: members})
	return Operation{Kind: record.KindRaiseLevel, Data: data}, err
}

// Level is the feature level of the store.
func (s *Store) Level() uint32 { return s.level.Load() }

// FeatureLevel is the highest feature level that the store's build supports.
func (s *Store) FeatureLevel() uint32 { return s.opts.FeatureLevel }

// CheckLevel returns why a command must not be proposed: a *LevelError, or an
// *UnknownOperationError where this build itself does not know an operation. The proposer calls
// it. What it allows stays allowed, because the level never falls.
func (s *Store) CheckLevel(c Command) error {
	if record.IsAppend(c) {
		return nil
	}
	var a record.AppendCommand
	ops, err := record.ParseCommandOf(c, &a, nil)
	if err != nil {
		return err
	}
	level := s.Level()
	for _, op := range ops {
		if op.Kind == record.KindAppend || op.Kind == record.KindRaiseLevel || op.Kind == record.KindReleaseHold {
			continue
		}
		m := s.machines[op.Kind]
		if m == nil {
			return &UnknownOperationError{Kind: op.Kind, Level: level, Supports: s.opts.FeatureLevel}
		}
		if needs := m.Level(op.Data); needs > level {
			return &LevelError{Kind: op.Kind, Needs: needs, Level: level}
		}
	}
	return nil
}

// raiseLevel applies a RaiseLevel.
func (a *applyTx) raiseLevel(data []byte, answer *Answer) (fatal error) {
	var m recordv1.RaiseLevel
	if err := proto.Unmarshal(data, &m); err != nil {
		return fmt.Errorf("%w: %w", record.ErrCommand, err)
	}
	members, err := record.ReadMembership(a.s.db())
	if err != nil {
		return err
	}
	if m.Level <= a.level || m.MembersIndex != members.Index {
		answer.Err = &RaiseError{Level: a.level, Given: m.Level, Members: members.Index, GivenMembers: m.MembersIndex}
		return nil
	}
	if m.Level > a.s.opts.FeatureLevel {
		return &BuildTooOldError{Level: m.Level, Supports: a.s.opts.FeatureLevel}
	}
	a.level = m.Level
	a.writes.Set(keys.Level, record.LevelRow(m.Level, a.position))
	return nil
}

// unknown is the end of a node whose build does not know an operation.
func (a *applyTx) unknown(kind uint32) error {
	return &UnknownOperationError{Kind: kind, Level: a.level, Supports: a.s.opts.FeatureLevel}
}

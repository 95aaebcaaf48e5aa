// Package enginerun is the machine that records the engine's own reference of a run, once (APP-12).
//
// It has no table: the reference is a part of the run's metadata, which CreateRun may say too.
package enginerun

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	recordv1 "runlog/proto/record/v1"
	"runlog/storage"
)

// Kind of the machine.
const Kind = 17

// Machine is the storage.Machine of this package.
type Machine struct{}

var _ storage.Machine = Machine{}

// Kind is storage.Machine's.
func (Machine) Kind() uint32 { return Kind }

// Tables is storage.Machine's.
func (Machine) Tables() []storage.Table { return nil }

// Level is storage.Machine's.
func (Machine) Level([]byte) uint32 { return storage.CoreLevel }

// Set is the operation that records the reference of a run. The same reference again changes
// nothing. It is refused with a *storage.RunNotFoundError, or with a *storage.RunExistsError where
// the run has another reference.
func Set(runID, ref string) (storage.Operation, error) {
	data, err := proto.Marshal(&recordv1.SetEngineRunRef{RunId: runID, EngineRunRef: ref})
	if err != nil {
		return storage.Operation{}, fmt.Errorf("enginerun: encode operation: %w", err)
	}
	return storage.Operation{Kind: Kind, Data: data}, nil
}

// EncodeSet is the command of one Set.
func EncodeSet(runID, ref string) (storage.Command, error) {
	op, err := Set(runID, ref)
	if err != nil {
		return storage.Command{}, err
	}
	return storage.EncodeCommand(op)
}

// Apply is storage.Machine's.
func (Machine) Apply(tx *storage.Tx, op []byte) (reply []byte, refused, fatal error) {
	var m recordv1.SetEngineRunRef
	if err := proto.Unmarshal(op, &m); err != nil {
		return nil, nil, fmt.Errorf("enginerun: undecodable operation: %w", err)
	}
	run, err := tx.Run(m.RunId)
	if err != nil {
		return nil, nil, err
	}
	if run == nil {
		return nil, &storage.RunNotFoundError{RunID: m.RunId}, nil
	}
	next := storage.Metadata{}
	if run.Metadata != nil {
		next = *run.Metadata
	}
	switch {
	case run.Metadata != nil && next.EngineRunRef == m.EngineRunRef:
		return nil, nil, nil
	case next.EngineRunRef != "":
		return nil, &storage.RunExistsError{RunID: m.RunId, What: "engineRunRef"}, nil
	}
	next.EngineRunRef = m.EngineRunRef
	return nil, nil, tx.SetMetadata(m.RunId, &next)
}

// Package metadata is the machine that changes the metadata of runs that exist (APP-12): the
// engine's own reference, once or by naming the one before, and the labels. What CreateRun says is
// a part of its append.
//
// Its one table has every change with its time and identity:
//
//	M runId 0x00 position:8 operation:2   record.v1.MetadataChange
package metadata

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"

	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	recordv1 "runlog/proto/record/v1"
	"runlog/storage"
	"runlog/storage/table"
)

// Kind of the machine.
const Kind = 17

// Machine is the storage.Machine of this package.
type Machine struct{}

var _ storage.Machine = Machine{}

// changes is the prefix of the table of changes.
const changes = "M"

// Kind implements storage.Machine.
func (Machine) Kind() uint32 { return Kind }

// Tables implements storage.Machine.
func (Machine) Tables() []storage.Table {
	return []storage.Table{{Prefix: []byte(changes), Name: "changes of metadata"}}
}

// Level implements storage.Machine.
func (Machine) Level([]byte) uint32 { return storage.CoreLevel }

// Update says which metadata of a run is replaced.
type Update struct {
	// EngineRunRef replaces Previous, which must be the current reference; nil: it stays.
	EngineRunRef *string
	Previous     string
	// Labels replace all labels; nil: they stay.
	Labels map[string]string
}

// PreviousError says that the engine's reference of a run is not the one that an update names.
type PreviousError struct {
	RunID, Given, Current string
}

func (e *PreviousError) Error() string {
	return fmt.Sprintf("run %q has engineRunRef %q, not the given previous %q", e.RunID, e.Current, e.Given)
}

// Set is the operation that records the reference of a run, once. The same reference again changes
// nothing. It is refused with a *storage.RunNotFoundError, with a *storage.LeaseLostError where
// fence is not the run's current one (QUE-8), or with a *storage.RunExistsError where the run has
// another reference. fence is nil for a caller without a lease.
func Set(runID, ref string, by contract.Author, fence *uint64) (storage.Operation, error) {
	return operation(by, &recordv1.MetadataOperation{RunId: runID, Fence: fence, Kind: &recordv1.MetadataOperation_SetEngineRunRef{SetEngineRunRef: ref}})
}

// UpdateOperation is the operation that replaces metadata of a run. It is refused with a
// *storage.RunNotFoundError or a *PreviousError. The same update again changes nothing.
func UpdateOperation(runID string, u Update, by contract.Author) (storage.Operation, error) {
	m := &recordv1.UpdateMetadata{EngineRunRef: u.EngineRunRef, PreviousEngineRunRef: u.Previous}
	if u.Labels != nil {
		m.Labels = &recordv1.Labels{Labels: u.Labels}
	}
	return operation(by, &recordv1.MetadataOperation{RunId: runID, Kind: &recordv1.MetadataOperation_Update{Update: m}})
}

func operation(by contract.Author, m *recordv1.MetadataOperation) (storage.Operation, error) {
	m.ChangedBy, m.ChangedByTokenId = by.Name, by.TokenID
	return storage.EncodeOperation(Kind, m)
}

// Apply implements storage.Machine.
func (Machine) Apply(tx *storage.Tx, op []byte) (reply []byte, refused, fatal error) {
	var m recordv1.MetadataOperation
	if err := proto.Unmarshal(op, &m); err != nil {
		return nil, nil, fmt.Errorf("metadata: undecodable operation: %w", err)
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
	change := &recordv1.MetadataChange{ChangedAt: tx.Stamp(), ChangedBy: m.ChangedBy, ChangedByTokenId: m.ChangedByTokenId}
	switch kind := m.Kind.(type) {
	case *recordv1.MetadataOperation_SetEngineRunRef:
		refused = set(&next, m.RunId, kind.SetEngineRunRef, change)
	case *recordv1.MetadataOperation_Update:
		refused = update(&next, m.RunId, kind.Update, change)
	default:
		return nil, nil, storage.ErrUnknownOperation
	}
	changed := change.EngineRunRef != nil || change.Labels != nil
	if m.Fence != nil && *m.Fence != run.Fence && (changed || refused != nil) {
		// It comes first: a caller without the lease must not read again and retry.
		refused = &storage.LeaseLostError{RunID: m.RunId, Given: *m.Fence, Current: run.Fence}
	}
	if refused != nil || !changed {
		return nil, refused, nil
	}
	key, err := nextKey(tx, m.RunId)
	if err != nil {
		return nil, nil, err
	}
	if err := table.Set(tx, key, change); err != nil {
		return nil, nil, err
	}
	return nil, nil, tx.SetMetadata(m.RunId, &next)
}

func set(md *storage.Metadata, runID, ref string, change *recordv1.MetadataChange) error {
	switch md.EngineRunRef {
	case ref:
	case "":
		change.EngineRunRef, change.PreviousEngineRunRef = &ref, proto.String("")
		md.EngineRunRef = ref
	default:
		return &storage.RunExistsError{RunID: runID, Fields: []string{"engineRunRef"}}
	}
	return nil
}

func update(md *storage.Metadata, runID string, u *recordv1.UpdateMetadata, change *recordv1.MetadataChange) error {
	if ref := u.EngineRunRef; ref != nil && *ref != md.EngineRunRef {
		if u.PreviousEngineRunRef != md.EngineRunRef {
			return &PreviousError{RunID: runID, Given: u.PreviousEngineRunRef, Current: md.EngineRunRef}
		}
		change.EngineRunRef, change.PreviousEngineRunRef = ref, proto.String(md.EngineRunRef)
		md.EngineRunRef = *ref
	}
	if u.Labels != nil && !maps.Equal(u.Labels.Labels, md.Labels) {
		change.Labels, change.PreviousLabels = u.Labels, &recordv1.Labels{Labels: md.Labels}
		md.Labels = u.Labels.Labels
	}
	return nil
}

// runKey is the begin of the keys of a run's changes. No runId has the byte behind it.
func runKey(runID string) table.Key { return table.In(changes).Text(runID) }

// nextKey is the key of the next change of a run. One proposal may have several.
func nextKey(tx *storage.Tx, runID string) ([]byte, error) {
	at := runKey(runID).Number(uint64(tx.Position()))
	for n := range uint16(1 << 15) {
		key := binary.BigEndian.AppendUint16(at[:len(at):len(at)], n)
		row, err := tx.Get(key)
		if err != nil || row == nil {
			return key, err
		}
	}
	return nil, errors.New("metadata: too many changes in one proposal")
}

// Change is one change of a run's metadata.
type Change struct {
	ChangedAt int64 // persistedAt of the proposal, nanoseconds
	ChangedBy contract.Author
	// EngineRunRef replaced PreviousEngineRunRef; nil: it stayed.
	EngineRunRef, PreviousEngineRunRef *string
	// Labels replaced PreviousLabels, if LabelsChanged.
	LabelsChanged          bool
	Labels, PreviousLabels map[string]string
}

// Changes returns at most n changes of a run's metadata, newest first.
func Changes(s *storage.Store, runID string, n int) ([]Change, error) {
	return storage.ReadTables(s, Kind, func(r table.Reader) (list []Change, err error) {
		from := runKey(runID)
		for m, err := range table.Each[recordv1.MetadataChange](r.ScanDown(from, from.After())) {
			if err != nil || len(list) == n {
				return list, err
			}
			list = append(list, Change{
				ChangedAt: m.ChangedAt, ChangedBy: contract.Author{Name: m.ChangedBy, TokenID: m.ChangedByTokenId},
				EngineRunRef: m.EngineRunRef, PreviousEngineRunRef: m.PreviousEngineRunRef,
				LabelsChanged: m.Labels != nil, Labels: m.Labels.GetLabels(), PreviousLabels: m.PreviousLabels.GetLabels(),
			})
		}
		return list, nil
	})
}

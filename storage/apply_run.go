package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"google.golang.org/protobuf/proto"

	recordv1 "runlog/proto/record/v1"
	"runlog/storage/internal/keys"
)

// newRun is a run as it will be if its first request is stored.
func (a *application) newRun(m *appendCommand) *run {
	return &run{
		no: a.nextRun,
		identity: &recordv1.RunIdentity{
			RunId: string(m.runID), Scope: m.scope.message(), Plan: m.plan.message(),
			CreatedAt: a.stamp, CreatedPosition: uint64(a.position),
		},
		receipts: map[keyPrefix]struct{}{},
	}
}

// createRun makes a run durable and known.
func (a *application) createRun(r *run, create *recordv1.RunMetadata) error {
	a.nextRun++
	a.s.active.add(r)
	a.touch(r)
	r.marked = true
	row, err := deterministic.Marshal(r.identity)
	if err != nil {
		return err
	}
	if err := a.batch.Set(keys.AppendIdentity(nil, r.no), row, nil); err != nil {
		return err
	}
	no := binary.BigEndian.AppendUint64(nil, r.no)
	if err := a.batch.Set(keys.AppendRunNo(nil, r.identity.RunId), no, nil); err != nil {
		return err
	}
	if create == nil {
		return nil
	}
	return a.setMetadata(r, create)
}

func (a *application) setMetadata(r *run, m *recordv1.RunMetadata) error {
	r.metadata = m
	a.s.active.resize(r)
	row, err := deterministic.Marshal(m)
	if err != nil {
		return err
	}
	return a.batch.Set(keys.AppendMetadata(nil, r.no), row, nil)
}

// setEngineRunRef records the engine's reference once; the same value again changes nothing (APP-12).
func (a *application) setEngineRunRef(m *recordv1.SetEngineRunRef, o *Outcome) error {
	r, err := a.s.activeRun([]byte(m.RunId))
	if err != nil {
		return err
	}
	if r == nil {
		o.Err = &RunNotFoundError{RunID: m.RunId}
		return nil
	}
	o.LastSeq = r.head.lastSeq
	next := &recordv1.RunMetadata{EngineRunRef: m.EngineRunRef}
	if have := r.metadata; have != nil {
		switch have.EngineRunRef {
		case m.EngineRunRef:
			return nil
		case "":
			next = proto.CloneOf(have)
			next.EngineRunRef = m.EngineRunRef
		default:
			o.Err = &RunExistsError{RunID: m.RunId, What: "engineRunRef"}
			return nil
		}
	}
	a.touch(r)
	r.marked = true
	return a.setMetadata(r, next)
}

// activeRun returns a run out of memory, or loads it; nil when there is none by that name.
func (s *Store) activeRun(runID []byte) (*run, error) {
	if r := s.active.get(runID); r != nil {
		return r, nil
	}
	no, found, err := findRun(s.db(), string(runID))
	if err != nil || !found {
		return nil, err
	}
	r := &run{no: no, receipts: map[keyPrefix]struct{}{}}
	if r.identity, err = readIdentity(s.db(), no); err != nil {
		return nil, err
	}
	if r.head, err = readHead(s.db(), no); err != nil {
		return nil, err
	}
	if r.metadata, err = readMetadata(s.db(), no); err != nil {
		return nil, err
	}
	if err := s.loadReceipts(r); err != nil {
		return nil, err
	}
	s.active.add(r)
	return r, nil
}

// loadReceipts indexes a run's receipts, unless it has more than maxIndexed.
func (s *Store) loadReceipts(r *run) (err error) {
	prefix := keys.ReceiptPrefix(r.no)
	it, err := s.db().NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: keys.ReceiptsEnd(r.no)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for it.First(); it.Valid(); it.Next() {
		if len(r.receipts) == maxIndexed {
			r.receipts = nil
			break
		}
		hash := bytes.TrimPrefix(it.Key(), prefix)
		if len(hash) != len(keyHash{}) {
			return fmt.Errorf("%w: receipt key of %d bytes", errRow, len(it.Key()))
		}
		r.receipts[keyPrefix(hash[:16])] = struct{}{}
	}
	return it.Error()
}

// findRun asks for a run's number through the bloom filters, also those of the last level: most
// questions are about runs that do not exist yet (D6).
func findRun(r pebble.Reader, runID string) (no uint64, found bool, err error) {
	it, err := r.NewIter(&pebble.IterOptions{UseL6Filters: true})
	if err != nil {
		return 0, false, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	key := keys.AppendRunNo(nil, runID)
	if !it.SeekPrefixGE(key) || !bytes.Equal(it.Key(), key) {
		return 0, false, it.Error()
	}
	if len(it.Value()) != 8 {
		return 0, false, fmt.Errorf("%w: run number of %d bytes", errRow, len(it.Value()))
	}
	return binary.BigEndian.Uint64(it.Value()), true, nil
}

// readIdentity of a run that exists.
func readIdentity(r pebble.Reader, no uint64) (*recordv1.RunIdentity, error) {
	m := &recordv1.RunIdentity{}
	found, err := readMessage(r, keys.AppendIdentity(nil, no), m)
	if err == nil && !found {
		err = fmt.Errorf("%w: run %d has no identity", errRow, no)
	}
	return m, err
}

// readHead of a run that exists.
func readHead(r pebble.Reader, no uint64) (head, error) {
	row, closer, err := r.Get(keys.AppendHead(nil, no))
	if err != nil {
		return head{}, fmt.Errorf("storage: read head of run %d: %w", no, err)
	}
	h, err := parseHead(row)
	return h, errors.Join(err, closer.Close())
}

// readMetadata of a run, nil when it has none.
func readMetadata(r pebble.Reader, no uint64) (*recordv1.RunMetadata, error) {
	m := &recordv1.RunMetadata{}
	found, err := readMessage(r, keys.AppendMetadata(nil, no), m)
	if err != nil || !found {
		return nil, err
	}
	return m, nil
}

func readMessage(r pebble.Reader, key []byte, m proto.Message) (found bool, err error) {
	row, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("storage: read: %w", err)
	}
	if err := proto.Unmarshal(row, m); err != nil {
		return false, errors.Join(fmt.Errorf("%w: %w", errRow, err), closer.Close())
	}
	return true, closer.Close()
}

package monitor

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/tlog"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/audit/proof"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

var cluster = [16]byte{7}

type fataler interface {
	Helper()
	Fatal(args ...any)
}

// entry is a record of a log.
type entry struct {
	tenant string
	record proof.Record
}

// scripted is a Source: a log that a test can rewrite, and the keys with which it is signed.
type scripted struct {
	t           fataler
	incarnation [8]byte
	entries     []entry
	signers     []*proof.Signer
	keys        []proof.Key
	// Of the log as it was signed last.
	note   string
	stored []tlog.Hash
	leaves []contract.Leaf
	before []contract.Digest // the chain digests before the records
	// tenant: the caller sees this one alone.
	tenant string
	// consistency, if there is one, answers in place of the log.
	consistency func(earlier, later uint64) []tlog.Hash
	// change changes the messages of exports.
	change func(*runlogv1.ExportEventsResponse)
	// failed is answered to each call.
	failed error
}

func newScripted(t fataler) *scripted {
	s := &scripted{t: t}
	s.rotate()
	return s
}

// rotate makes another key, which the one before endorses.
func (s *scripted) rotate() {
	s.t.Helper()
	n := uint64(len(s.keys) + 1)
	signer, err := proof.NewSigner(cluster, [32]byte{byte(n)})
	if err != nil {
		s.t.Fatal(err)
	}
	key := proof.Key{PublicKey: signer.PublicKey()}
	if n > 1 {
		said := (&proof.SigningKey{Cluster: cluster, Number: n, PublicKey: key.PublicKey}).Statement()
		if key.Endorsement, err = s.signers[n-2].Sign(said); err != nil {
			s.t.Fatal(err)
		}
	}
	s.signers, s.keys = append(s.signers, signer), append(s.keys, key)
}

// add appends records of a run.
func (s *scripted) add(run, tenant string, n int) {
	seq := uint64(0)
	for _, e := range s.entries {
		if e.record.RunID == run {
			seq = e.record.RunSeq
		}
	}
	for range n {
		seq++
		at := int64(len(s.entries)+1) * 1e9
		r := contract.Recorded{Event: contract.Event{
			Contract: contract.Line2, EventID: contract.EventID{byte(len(s.entries) >> 8), byte(len(s.entries)), 15: 7}, Type: "StepStarted", RunID: run,
			TenantID: tenant, ProjectID: "project", EnvironmentID: "prod", PlanID: "plan", PlanVersion: "v1", StepID: fmt.Sprint("step-", seq),
			LogicalAttemptID: 1, EngineAttemptID: 1, IdempotencyKey: fmt.Sprint("key-", seq), EmittedAt: at - 5, EmittedBy: "engine", Payload: []byte(`{"a": 1}`),
		}, RunSeq: seq, PersistedAt: at, PayloadSalt: contract.Salt{byte(seq), 3}}
		s.entries = append(s.entries, entry{tenant, proof.Record(r)})
	}
}

// sign makes the tree of the log as it is, and signs it with the newest key.
func (s *scripted) sign() {
	s.t.Helper()
	s.stored, s.leaves, s.before = nil, nil, nil
	chains := map[string]contract.Digest{}
	for i := range s.entries {
		r := &s.entries[i].record
		s.before = append(s.before, chains[r.RunID])
		chains[r.RunID] = r.Chain(chains[r.RunID])
		// Three records to a proposal.
		leaf := contract.Leaf{Chain: chains[r.RunID], Position: uint64(10 + i/3), Offset: uint32(i % 3), PersistedAt: r.PersistedAt}
		hashes, err := tlog.StoredHashesForRecordHash(int64(i), leaf.Hash(), s)
		if err != nil {
			s.t.Fatal(err)
		}
		s.stored, s.leaves = append(s.stored, hashes...), append(s.leaves, leaf)
	}
	size := len(s.entries)
	c := proof.Checkpoint{Cluster: cluster, Incarnation: s.incarnation, Size: uint64(size), Position: uint64(10 + size), Runs: uint64(len(chains))}
	var err error
	if c.Root, err = tlog.TreeHash(int64(size), s); err != nil {
		s.t.Fatal(err)
	}
	if size > 0 {
		c.CompleteThrough = s.entries[size-1].record.PersistedAt
	}
	if s.note, err = s.signers[len(s.signers)-1].SignCheckpoint(&c); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scripted) ReadHashes(indexes []int64) (out []tlog.Hash, err error) {
	for _, i := range indexes {
		out = append(out, s.stored[i])
	}
	return out, nil
}

func (s *scripted) Newest(context.Context) (string, error)    { return s.note, s.failed }
func (s *scripted) Keys(context.Context) ([]proof.Key, error) { return slices.Clone(s.keys), s.failed }
func (s *scripted) monitor(whole bool) *Monitor {
	s.t.Helper()
	m, err := New(Options{Source: s, Keys: []string{s.keys[0].PublicKey}, Whole: whole})
	if err != nil {
		s.t.Fatal(err)
	}
	return m
}

func (s *scripted) Consistency(_ context.Context, earlier, later uint64) ([]tlog.Hash, error) {
	if s.consistency != nil {
		return s.consistency(earlier, later), nil
	}
	return proof.ProveConsistency(int64(earlier), int64(later), s)
}

func (s *scripted) Events(_ context.Context, after, upTo int64, size uint64) iter.Seq2[*runlogv1.ExportEventsResponse, error] {
	return func(yield func(*runlogv1.ExportEventsResponse, error) bool) {
		var indexes []int64
		resp := &runlogv1.ExportEventsResponse{Places: &runlogv1.RecordPlaces{}}
		send := func() bool {
			if len(indexes) > 0 {
				hashes, err := proof.ProveInclusion(int64(size), indexes, s)
				if err != nil {
					return yield(nil, err)
				}
				resp.Places.Hashes = proof.JoinHashes(hashes)
			}
			if s.change != nil {
				s.change(resp)
			}
			more := yield(resp, nil)
			resp, indexes = &runlogv1.ExportEventsResponse{Places: &runlogv1.RecordPlaces{}}, nil
			return more
		}
		for i := range s.entries {
			e := &s.entries[i]
			if e.record.PersistedAt <= after || e.record.PersistedAt > upTo || s.tenant != "" && s.tenant != e.tenant {
				continue
			}
			indexes = append(indexes, int64(i))
			resp.Events = append(resp.Events, message(&e.record))
			p := resp.Places
			p.Indexes, p.Positions = append(p.Indexes, uint64(i)), append(p.Positions, s.leaves[i].Position)
			p.Offsets, p.Previous = append(p.Offsets, s.leaves[i].Offset), append(p.Previous, s.before[i][:]...)
			if len(indexes) == 4 && !send() {
				return
			}
		}
		if send() {
			yield(&runlogv1.ExportEventsResponse{Summary: &runlogv1.ExportSummary{}}, nil)
		}
	}
}

// message returns a record as the API has it.
func message(r *proof.Record) *runlogv1.EventRecord {
	payload, record := r.Digests(r.PayloadSalt, r.AppendedBy, r.Original)
	var by *string
	if r.AppendedBy.Name != "" {
		by = &r.AppendedBy.Name
	}
	return &runlogv1.EventRecord{
		AppendedBy: by, EventId: r.EventID.String(), EventType: r.Type, RunId: r.RunID, TenantId: r.TenantID, ProjectId: r.ProjectID, EnvironmentId: r.EnvironmentID,
		PlanId: r.PlanID, PlanVersion: r.PlanVersion, StepId: &r.StepID, LogicalAttemptId: r.LogicalAttemptID, EngineAttemptId: r.EngineAttemptID,
		IdempotencyKey: r.IdempotencyKey, EmittedAt: timestamppb.New(time.Unix(0, r.EmittedAt)), EmittedBy: &r.EmittedBy, ContractVersion: r.Contract.String(),
		PayloadForm: &runlogv1.EventRecord_PayloadJson{PayloadJson: r.Payload}, RunSeq: r.RunSeq, PersistedAt: timestamppb.New(time.Unix(0, r.PersistedAt)),
		PayloadSalt: r.PayloadSalt.String(), PayloadDigest: payload.String(), RecordDigest: record.String(), ChainDigest: contract.Digest{1}.String(),
	}
}

func next(m *Monitor) (*Round, error) { return m.Next(context.Background()) }

// grew is an error unless a round has verified so many records.
func grew(m *Monitor, records int) error {
	round, err := next(m)
	switch {
	case err != nil:
		return err
	case round == nil && records == 0:
		return nil
	case round == nil || round.Records != uint64(records):
		return fmt.Errorf("the round is %+v, want one of %d records", round, records)
	}
	return nil
}

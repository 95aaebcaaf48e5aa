package storagetest

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"runlog/proto/contract"
	"runlog/storage"
)

// This file works the digests of APP-11 out a second time, from the words that describe them.

// field appends number, length in four bytes and value.
func field(b []byte, number int, value []byte) []byte {
	b = append(b, byte(number), byte(len(value)>>24), byte(len(value)>>16), byte(len(value)>>8), byte(len(value)))
	return append(b, value...)
}

// text appends a field that is there only when it says something.
func text(b []byte, number int, value string, there bool) []byte {
	if !there {
		return b
	}
	return field(b, number, []byte(value))
}

func eight(n uint64) []byte {
	b := make([]byte, 8)
	for i := range b {
		b[i] = byte(n >> (8 * (7 - i)))
	}
	return b
}

// canonical returns the canonical envelope bytes of an event, or, for content, those that IDM-7
// compares.
func canonical(e *contract.Event, content bool) []byte {
	tag := "runlog/envelope/1\x00"
	if content {
		tag = "runlog/content/3\x00"
	}
	b := []byte(tag)
	if !content {
		b = field(b, 1, e.EventID[:])
	}
	b = text(b, 2, e.Type, true)
	b = text(b, 3, e.RunID, true)
	b = text(b, 4, e.TenantID, e.Absent&contract.AbsentTenant == 0)
	b = text(b, 5, e.ProjectID, e.Absent&contract.AbsentProject == 0)
	b = text(b, 6, e.EnvironmentID, e.Absent&contract.AbsentEnvironment == 0)
	b = text(b, 7, e.PlanID, e.Absent&contract.AbsentPlan == 0)
	b = text(b, 8, e.PlanVersion, e.Absent&contract.AbsentPlanVersion == 0)
	b = text(b, 9, e.StepID, e.StepID != "")
	b = field(b, 10, eight(uint64(e.LogicalAttemptID)))
	if !content {
		b = field(b, 11, eight(uint64(e.EngineAttemptID)))
	}
	b = text(b, 12, e.IdempotencyKey, true)
	if !content {
		b = field(b, 13, eight(uint64(e.EmittedAt)))
		b = text(b, 14, e.EmittedBy, e.EmittedBy != "")
	}
	b = text(b, 15, e.CausedBySignalID, e.CausedBySignalID != "")
	b = text(b, 16, e.ParentEventID, e.ParentEventID != "")
	b = text(b, 19, string(e.Extensions), len(e.Extensions) > 0)
	version := "2.0.0"
	if e.Contract == contract.Line11 {
		version = "1.1"
	}
	return text(b, 17, version, true)
}

func sameContent(a, b *contract.Event) bool {
	return string(canonical(a, true)) == string(canonical(b, true)) && string(a.Payload) == string(b.Payload)
}

// recordDigest has the identity behind the payload's digest, where no producer can put anything
// (SEC-8).
func recordDigest(e *contract.Event, salt contract.Salt, by contract.Author, o contract.Original) (payload, record contract.Digest) {
	payload = sha256.Sum256(slices.Concat([]byte("runlog/payload/1\x00"), salt[:], e.Payload))
	b := text(append(canonical(e, false), payload[:]...), 18, by.Name, by.Name != "")
	b = text(b, 22, by.TokenID, by.TokenID != "")
	imported := o.PersistedAt != 0
	b = text(b, 20, string(eight(uint64(o.PersistedAt))), imported)
	return payload, sha256.Sum256(text(b, 21, o.Source, imported && o.Source != ""))
}

// saltsOf are those of the request, or, if it has none, some that follow from its events, so that a
// request is always encoded the same way.
func saltsOf(a *storage.Append) []contract.Salt {
	if len(a.Salts) > 0 {
		return a.Salts
	}
	salts := make([]contract.Salt, len(a.Events))
	for i := range salts {
		sum := sha256.Sum256(append(canonical(&a.Events[i], false), a.Events[i].Payload...))
		salts[i] = contract.Salt(sum[:16])
	}
	return salts
}

// encoded is the request with all that encoding would draw at random.
func encoded(a *storage.Append) *storage.Append {
	all := *a
	all.Salts, all.ReceiptKey = saltsOf(a), storage.ReceiptKey{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	return &all
}

func chainDigest(prev, record contract.Digest, seq uint64, persistedAt int64) contract.Digest {
	b := []byte("runlog/chain/1\x00")
	b = append(b, prev[:]...)
	b = append(b, record[:]...)
	b = append(b, eight(seq)...)
	return sha256.Sum256(append(b, eight(uint64(persistedAt))...))
}

// Verify checks all records of a run, in order, the way an auditor does: numbering, stamps and the
// three digests from the first record to the run's head (APP-1, APP-5, APP-11).
func Verify(run *storage.Run, records []storage.Record) error {
	var (
		chain    contract.Digest
		seq      uint64
		at       int64
		position storage.Position
	)
	for i := range records {
		r := &records[i]
		if r.RunSeq <= seq || r.RunSeq != seq+1 && r.Original.PersistedAt == 0 {
			return fmt.Errorf("record %d of run %q has runSeq %d after %d", i+1, run.RunID, r.RunSeq, seq)
		}
		seq = r.RunSeq
		if r.PersistedAt < at || r.Position < position {
			return fmt.Errorf("record %d of run %q goes back: stamp %d after %d, position %d after %d",
				r.RunSeq, run.RunID, r.PersistedAt, at, r.Position, position)
		}
		at, position = r.PersistedAt, r.Position
		payload, record := recordDigest(&r.Event, r.PayloadSalt, r.AppendedBy, r.Original)
		chain = chainDigest(chain, record, r.RunSeq, r.PersistedAt)
		if r.PayloadDigest != payload || r.RecordDigest != record || r.ChainDigest != chain {
			return fmt.Errorf("digests of record %d of run %q: payload %s record %s chain %s, want %s %s %s",
				r.RunSeq, run.RunID, r.PayloadDigest, r.RecordDigest, r.ChainDigest, payload, record, chain)
		}
	}
	if seq != run.LastSeq || chain != run.Chain || at != run.PersistedAt || position != run.Position {
		return fmt.Errorf("head of run %q says lastSeq %d, stamp %d, position %d, chain %x; its records say %d, %d, %d, %s",
			run.RunID, run.LastSeq, run.PersistedAt, run.Position, run.Chain, seq, at, position, chain)
	}
	return nil
}

package servertest

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"

	runlogv1 "runlog/proto/runlog/v1"
)

// This file is the code of an auditor with docs/formats.md and the API only: it shares no code with
// the server.

// AuditRun verifies the records of a run from the first one on, payloads as bytes: rising runSeq,
// digests and chain (APP-11).
func AuditRun(records []*runlogv1.EventRecord) error {
	chain := make([]byte, 32)
	var last uint64
	for _, r := range records {
		if r.RunSeq <= last {
			return fmt.Errorf("runSeq %d after %d", r.RunSeq, last)
		}
		last = r.RunSeq
		envelope, err := envelopeBytes(r)
		if err != nil {
			return fmt.Errorf("runSeq %d: %w", r.RunSeq, err)
		}
		salt, err := hex.DecodeString(r.PayloadSalt)
		if err != nil || len(salt) != 16 {
			return fmt.Errorf("runSeq %d: payload salt %q", r.RunSeq, r.PayloadSalt)
		}
		payload := sha256.Sum256(slices.Concat([]byte("runlog/payload/1\x00"), salt, r.GetPayloadJson()))
		envelope = append(envelope, payload[:]...)
		if by := r.AppendedBy; by != nil {
			envelope = append(envelope, 18)
			envelope = append(binary.BigEndian.AppendUint32(envelope, uint32(len(*by))), *by...)
		}
		if id := r.AppendedByTokenId; id != nil {
			envelope = append(envelope, 22)
			envelope = append(binary.BigEndian.AppendUint32(envelope, uint32(len(*id))), *id...)
		}
		if o := r.Original; o != nil {
			envelope = append(envelope, 20, 0, 0, 0, 8)
			envelope = binary.BigEndian.AppendUint64(envelope, uint64(SinceEpoch(o.PersistedAt)))
			if o.Source != nil {
				envelope = append(binary.BigEndian.AppendUint32(append(envelope, 21), uint32(len(*o.Source))), *o.Source...)
			}
		}
		record := sha256.Sum256(envelope)
		link := append([]byte("runlog/chain/1\x00"), chain...)
		link = append(link, record[:]...)
		link = binary.BigEndian.AppendUint64(link, r.RunSeq)
		link = binary.BigEndian.AppendUint64(link, uint64(SinceEpoch(r.PersistedAt)))
		next := sha256.Sum256(link)
		chain = next[:]
		for _, d := range []struct {
			name, have string
			want       []byte
		}{{"payload", r.PayloadDigest, payload[:]}, {"record", r.RecordDigest, record[:]}, {"chain", r.ChainDigest, chain}} {
			if d.have != hex.EncodeToString(d.want) {
				return fmt.Errorf("runSeq %d: %s digest %s, want %x", r.RunSeq, d.name, d.have, d.want)
			}
		}
	}
	return nil
}

// SinceEpoch returns a time in nanoseconds since 1970.
func SinceEpoch(t *timestamppb.Timestamp) int64 {
	return t.GetSeconds()*1_000_000_000 + int64(t.GetNanos())
}

// envelopeBytes are the canonical envelope bytes.
func envelopeBytes(r *runlogv1.EventRecord) ([]byte, error) {
	b := []byte("runlog/envelope/1\x00")
	add := func(number byte, value []byte) {
		b = append(b, number)
		b = binary.BigEndian.AppendUint32(b, uint32(len(value)))
		b = append(b, value...)
	}
	given := func(number byte, name, value string) {
		if !slices.Contains(r.Inherited, name) {
			add(number, []byte(value))
		}
	}
	present := func(number byte, value *string) {
		if value != nil {
			add(number, []byte(*value))
		}
	}
	eight := func(number byte, value uint64) { add(number, binary.BigEndian.AppendUint64(nil, value)) }

	id, err := hex.DecodeString(strings.ReplaceAll(r.EventId, "-", ""))
	if err != nil || len(id) != 16 {
		return nil, fmt.Errorf("eventId %q", r.EventId)
	}
	add(1, id)
	add(2, []byte(r.EventType))
	add(3, []byte(r.RunId))
	given(4, "tenantId", r.TenantId)
	given(5, "projectId", r.ProjectId)
	given(6, "environmentId", r.EnvironmentId)
	given(7, "planId", r.PlanId)
	given(8, "planVersion", r.PlanVersion)
	present(9, r.StepId)
	eight(10, uint64(r.LogicalAttemptId))
	eight(11, uint64(r.EngineAttemptId))
	add(12, []byte(r.IdempotencyKey))
	eight(13, uint64(SinceEpoch(r.EmittedAt)))
	present(14, r.EmittedBy)
	present(15, r.CausedBySignalId)
	present(16, r.ParentEventId)
	if r.ExtensionsJson != nil {
		add(19, r.ExtensionsJson)
	}
	add(17, []byte(r.ContractVersion))
	return b, nil
}

// VerifyChain wants the records of a run to hold what docs/formats.md promises.
func VerifyChain(t testing.TB, records []*runlogv1.EventRecord) {
	t.Helper()
	if err := AuditRun(records); err != nil {
		t.Fatalf("run %s: %v", records[0].RunId, err)
	}
}

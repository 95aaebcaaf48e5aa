package wire

import (
	"encoding/hex"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/storage"
)

// The fields of EventRecord (event.proto) and of google.protobuf.Timestamp.
const (
	fieldEventID          = 1
	fieldEventType        = 2
	fieldRunID            = 3
	fieldTenantID         = 4
	fieldProjectID        = 5
	fieldEnvironmentID    = 6
	fieldPlanID           = 7
	fieldPlanVersion      = 8
	fieldStepID           = 9
	fieldLogicalAttemptID = 10
	fieldEngineAttemptID  = 11
	fieldIdempotencyKey   = 12
	fieldEmittedAt        = 13
	fieldEmittedBy        = 14
	fieldCausedBySignalID = 15
	fieldParentEventID    = 16
	fieldContractVersion  = 17
	fieldPayloadJSON      = 18
	fieldRunSeq           = 20
	fieldPersistedAt      = 21
	fieldPayloadDigest    = 22
	fieldRecordDigest     = 23
	fieldChainDigest      = 24
	fieldInherited        = 25
	fieldAppendedBy       = 27
	fieldOriginal         = 28
	fieldAppendedByToken  = 29
	fieldExtensionsJSON   = 40

	fieldSeconds = 1
	fieldNanos   = 2

	fieldOriginalPersistedAt = 1
	fieldOriginalSource      = 2
)

// AppendRecord appends the wire form of what Record returns. It makes no message: a consumer gets
// hundreds of thousands of events a second.
func AppendRecord(dst []byte, r *storage.Record, form runlogv1.PayloadForm_Form) ([]byte, error) {
	if form == runlogv1.PayloadForm_STRUCT {
		m, err := Record(r, form)
		if err != nil {
			return dst, err
		}
		return proto.MarshalOptions{}.MarshalAppend(dst, m)
	}
	dst = protowire.AppendTag(dst, fieldEventID, protowire.BytesType)
	dst = protowire.AppendVarint(dst, contract.EventIDText)
	dst = r.EventID.Append(dst)
	for _, f := range [...]struct {
		number protowire.Number
		text   string
	}{
		{fieldEventType, r.Type},
		{fieldRunID, r.RunID},
		{fieldTenantID, r.TenantID},
		{fieldProjectID, r.ProjectID},
		{fieldEnvironmentID, r.EnvironmentID},
		{fieldPlanID, r.PlanID},
		{fieldPlanVersion, r.PlanVersion},
		{fieldStepID, r.StepID},
	} {
		dst = appendText(dst, f.number, f.text)
	}
	dst = appendUint(dst, fieldLogicalAttemptID, uint64(r.LogicalAttemptID))
	dst = appendUint(dst, fieldEngineAttemptID, uint64(r.EngineAttemptID))
	dst = appendText(dst, fieldIdempotencyKey, r.IdempotencyKey)
	dst = appendTime(dst, fieldEmittedAt, r.EmittedAt)
	dst = appendText(dst, fieldEmittedBy, r.EmittedBy)
	dst = appendText(dst, fieldCausedBySignalID, r.CausedBySignalID)
	dst = appendText(dst, fieldParentEventID, r.ParentEventID)
	dst = appendText(dst, fieldContractVersion, r.Contract.String())
	dst = protowire.AppendTag(dst, fieldPayloadJSON, protowire.BytesType)
	dst = protowire.AppendBytes(dst, r.Payload)
	dst = appendUint(dst, fieldRunSeq, r.RunSeq)
	dst = appendTime(dst, fieldPersistedAt, r.PersistedAt)
	dst = appendDigest(dst, fieldPayloadDigest, &r.PayloadDigest)
	dst = appendDigest(dst, fieldRecordDigest, &r.RecordDigest)
	dst = appendDigest(dst, fieldChainDigest, &r.ChainDigest)
	for _, name := range inherited(r.Absent) {
		dst = appendText(dst, fieldInherited, name)
	}
	dst = appendText(dst, fieldAppendedBy, r.AppendedBy.Name)
	if o := &r.Original; o.PersistedAt != 0 {
		var stack [64]byte
		dst = appendText(dst, fieldOriginal, appendText(appendTime(stack[:0], fieldOriginalPersistedAt, o.PersistedAt), fieldOriginalSource, o.Source))
	}
	dst = appendText(dst, fieldAppendedByToken, r.AppendedBy.TokenID)
	return appendText(dst, fieldExtensionsJSON, r.Extensions), nil
}

func appendText[T string | []byte](dst []byte, number protowire.Number, text T) []byte {
	if len(text) == 0 {
		return dst
	}
	dst = protowire.AppendTag(dst, number, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(len(text)))
	return append(dst, text...)
}

func appendUint(dst []byte, number protowire.Number, n uint64) []byte {
	if n == 0 {
		return dst
	}
	dst = protowire.AppendTag(dst, number, protowire.VarintType)
	return protowire.AppendVarint(dst, n)
}

// appendTime appends a google.protobuf.Timestamp.
func appendTime(dst []byte, number protowire.Number, ns int64) []byte {
	at := time.Unix(0, ns)
	var stack [24]byte
	b := appendUint(stack[:0], fieldSeconds, uint64(at.Unix()))
	b = appendUint(b, fieldNanos, uint64(at.Nanosecond()))
	dst = protowire.AppendTag(dst, number, protowire.BytesType)
	return protowire.AppendBytes(dst, b)
}

func appendDigest(dst []byte, number protowire.Number, d *contract.Digest) []byte {
	dst = protowire.AppendTag(dst, number, protowire.BytesType)
	dst = protowire.AppendVarint(dst, 2*uint64(len(d)))
	return hex.AppendEncode(dst, d[:])
}

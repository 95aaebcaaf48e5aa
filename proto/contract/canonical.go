package contract

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// Domain tags. Each hash over several parts begins with one, so that no digest of one kind can ever
// be taken for one of another kind.
const (
	envelopeTag = "runlog/envelope/1\x00"
	chainTag    = "runlog/chain/1\x00"
	contentTag  = "runlog/content/3\x00"
	importedTag = "runlog/imported/1\x00"
	payloadTag  = "runlog/payload/1\x00"
	windowTag   = "runlog/window/1\x00"
)

// Numbers of the canonical fields, as the table of fields has them. They are those of EventWrite on
// the wire, but fixed here: a change of the wire would not change them.
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

	// These are no canonical fields: only the record digest has them.
	fieldAppendedBy          = 18
	fieldOriginalPersistedAt = 20
	fieldOriginalSource      = 21
	fieldAppendedByTokenID   = 22

	// fieldExtensions stands before fieldContractVersion, which ends the canonical bytes.
	fieldExtensions = 19
)

// canonicalStack is enough for the canonical bytes of nearly every event; a longer one is
// allocated.
const canonicalStack = 1024

// AppendCanonical appends the canonical envelope bytes of the event (APP-11): the 18 bytes
// "runlog/envelope/1\x00", then each field that is present, in the order of this list, as
//
//	field number  1 byte
//	length        4 bytes, big endian, of the value
//	value         as below
//
//	 1 eventId           16 bytes, the UUID
//	 2 eventType         text
//	 3 runId             text
//	 4 tenantId          text, unless absent
//	 5 projectId         text, unless absent
//	 6 environmentId     text, unless absent
//	 7 planId            text, unless absent
//	 8 planVersion       text, unless absent
//	 9 stepId            text, where the event has one
//	10 logicalAttemptId  8 bytes, big endian
//	11 engineAttemptId   8 bytes, big endian
//	12 idempotencyKey    text, always there, also when the server derived it
//	13 emittedAt         8 bytes, big endian two's complement: nanoseconds since
//	                     1970-01-01T00:00:00Z
//	14 emittedBy         text, where the event has one
//	15 causedBySignalId  text, where the event has one
//	16 parentEventId     text, where the event has one
//	19 extensions        the JSON object as the producer sent it, where the event has one
//	17 contractVersion   text, "2.0.0" or "1.1", always there
//
// Text is UTF-8 as the producer sent it. A field that a sparse 1.1 event left out (Absent) is
// skipped, whether or not it has been filled in from the run since: what is inherited is no part of
// the record (ENV-1). What the event took from its own payload is present. The payload is not part
// of the bytes; its digest follows them in the record digest.
//
// The fields are spelled out, because a walk over canonicalFields took 55 ns in place of 47. A test
// compares the two.
func (e *Event) AppendCanonical(dst []byte) []byte {
	dst = append(dst, envelopeTag...)
	dst = appendField(dst, fieldEventID, e.EventID[:])
	dst = e.appendNames(dst)
	dst = appendNumberField(dst, fieldLogicalAttemptID, uint64(e.LogicalAttemptID))
	dst = appendNumberField(dst, fieldEngineAttemptID, uint64(e.EngineAttemptID))
	dst = appendField(dst, fieldIdempotencyKey, e.IdempotencyKey)
	dst = appendNumberField(dst, fieldEmittedAt, uint64(e.EmittedAt))
	dst = appendOptional(dst, fieldEmittedBy, e.EmittedBy)
	return e.appendCauses(dst)
}

// PayloadDigest returns SHA-256 over the 17 bytes "runlog/payload/1\x00", the salt and the payload
// bytes as stored (APP-11). Without the salt it tells nothing of the payload (LIFE-5).
func (e *Event) PayloadDigest(salt Salt) Digest {
	var stack [len(payloadTag) + len(salt)]byte
	return hashBehind(append(append(stack[:0], payloadTag...), salt[:]...), e.Payload)
}

// hashBehind returns SHA-256 over two parts, without a copy of the second.
func hashBehind(begin, rest []byte) (d Digest) {
	h := sha256.New()
	h.Write(begin)
	h.Write(rest)
	h.Sum(d[:0])
	return d
}

// Original is what the source of an imported event said of it (APP-13). The zero value: the event
// was not imported.
type Original struct {
	PersistedAt int64  // nanoseconds since 1970; never 0 if the event was imported
	Source      string // the identity that appended the event there; empty: none is known
}

// Author is the authenticated caller that appended or imported an event (SEC-8). The zero value:
// the caller had no identity.
type Author struct {
	Name string // of the identity
	// TokenID is that of the API token that the caller presented; empty for other credentials. A
	// token's name may be given again once the token is revoked, its id never.
	TokenID string
}

// Digests returns the payload digest and the record digest of the event (APP-11). salt and by are
// what the authority recorded with it. The record digest is SHA-256 over
//
//	canonical envelope bytes  AppendCanonical, which the producer controls
//	payload digest            32 bytes
//	appendedBy                unless empty: field 18, in the form of the canonical fields
//	appendedByTokenId         unless empty: field 22
//	original.persistedAt      of an imported event: field 20, 8 bytes as emittedAt
//	original.source           unless empty: field 21
//
// Field 17 always ends the canonical bytes, so no identity reads as part of an event.
func (e *Event) Digests(salt Salt, by Author, original Original) (payload, record Digest) {
	payload = e.PayloadDigest(salt)
	var stack [canonicalStack]byte
	b := append(e.AppendCanonical(stack[:0]), payload[:]...)
	b = appendOptional(b, fieldAppendedBy, by.Name)
	b = appendOptional(b, fieldAppendedByTokenID, by.TokenID)
	return payload, sha256.Sum256(original.append(b))
}

// append appends the fields of the record digest that an imported event has.
func (o *Original) append(dst []byte) []byte {
	if o.PersistedAt == 0 {
		return dst
	}
	dst = appendNumberField(dst, fieldOriginalPersistedAt, uint64(o.PersistedAt))
	return appendOptional(dst, fieldOriginalSource, o.Source)
}

// ChainDigest returns the link of a record in its run's chain (APP-11): SHA-256 over the 15 bytes
// "runlog/chain/1\x00", the run's previous chain digest (32 zero bytes before its first record),
// the record digest, runSeq (8 bytes, big endian) and persistedAt (nanoseconds since
// 1970-01-01T00:00:00Z, 8 bytes, big endian two's complement).
func ChainDigest(prev, record Digest, runSeq uint64, persistedAt int64) Digest {
	var stack [len(chainTag) + 2*sha256.Size + 16]byte
	b := append(stack[:0], chainTag...)
	b = append(b, prev[:]...)
	b = append(b, record[:]...)
	b = binary.BigEndian.AppendUint64(b, runSeq)
	b = binary.BigEndian.AppendUint64(b, uint64(persistedAt))
	return sha256.Sum256(b)
}

// WindowDigest returns the digest of a window's events up to one (READ-4): SHA-256 over the 16
// bytes "runlog/window/1\x00", the digest up to the event before (32 zero bytes before the first),
// and the event's record digest, runSeq, persistedAt, 8 zero bytes (numbers of 8 bytes, big endian,
// times in nanoseconds since 1970-01-01T00:00:00Z), chain digest, and what
// AppendInherited gives, which is most often nothing. The events are those that the window's filter
// lets through, in commit order.
func WindowDigest(prev Digest, e *Event, record Digest, runSeq uint64, persistedAt int64, chain Digest) Digest {
	var stack [canonicalStack]byte
	b := append(stack[:0], windowTag...)
	b = append(b, prev[:]...)
	b = append(b, record[:]...)
	b = binary.BigEndian.AppendUint64(b, runSeq)
	b = binary.BigEndian.AppendUint64(b, uint64(persistedAt))
	b = binary.BigEndian.AppendUint64(b, 0)
	b = append(b, chain[:]...)
	return sha256.Sum256(e.AppendInherited(b))
}

// AppendInherited appends what the event did not name and a reader is shown of its run (ENV-1): the
// absent fields of 4 to 8, in the form that they would have among the canonical bytes.
func (e *Event) AppendInherited(dst []byte) []byte {
	for i := range canonicalFields {
		if f := &canonicalFields[i]; e.Absent&f.absent != 0 {
			dst = appendField(dst, f.number, *(*string)(f.in(e)))
		}
	}
	return dst
}

// ContentDigest returns the first 8 bytes of SHA-256 over the 17 bytes "runlog/content/3\x00", the
// canonical fields but eventId, engineAttemptId, emittedAt and emittedBy, and the payload (IDM-7).
//
// Two events of one run and one key with equal content digests have not diverged. Unequal ones may
// still say the same in other bytes: ask SameContent. The digest has no salt, because two tries
// must have the same, so a reader of it can try payloads. It is in commands alone, which have the
// payload too. What a receipt keeps of it is keyed (LIFE-5).
func (e *Event) ContentDigest() [8]byte {
	var stack [canonicalStack]byte
	b := append(stack[:0], contentTag...)
	b = e.appendNames(b)
	b = appendNumberField(b, fieldLogicalAttemptID, uint64(e.LogicalAttemptID))
	b = appendField(b, fieldIdempotencyKey, e.IdempotencyKey)
	sum := hashBehind(e.appendCauses(b), e.Payload)
	return [8]byte(sum[:8])
}

// ImportedDigest returns the first 8 bytes of SHA-256 over the 18 bytes "runlog/imported/1\x00",
// what the source said of the event, in the form of the record digest, the canonical envelope bytes
// and the payload. It tells imported events of one key apart, whichever identity imports them
// (APP-13). What holds for ContentDigest holds for it.
func (e *Event) ImportedDigest(original Original) [8]byte {
	var stack [canonicalStack]byte
	sum := hashBehind(e.AppendCanonical(original.append(append(stack[:0], importedTag...))), e.Payload)
	return [8]byte(sum[:8])
}

// appendNames appends the fields 2 to 9: what the event is and where it belongs.
func (e *Event) appendNames(dst []byte) []byte {
	dst = appendField(dst, fieldEventType, e.Type)
	dst = appendField(dst, fieldRunID, e.RunID)
	dst = e.appendUnlessAbsent(dst, fieldTenantID, AbsentTenant, e.TenantID)
	dst = e.appendUnlessAbsent(dst, fieldProjectID, AbsentProject, e.ProjectID)
	dst = e.appendUnlessAbsent(dst, fieldEnvironmentID, AbsentEnvironment, e.EnvironmentID)
	dst = e.appendUnlessAbsent(dst, fieldPlanID, AbsentPlan, e.PlanID)
	dst = e.appendUnlessAbsent(dst, fieldPlanVersion, AbsentPlanVersion, e.PlanVersion)
	return appendOptional(dst, fieldStepID, e.StepID)
}

// appendCauses appends the fields 15 to 19: the last is 17.
func (e *Event) appendCauses(dst []byte) []byte {
	dst = appendOptional(dst, fieldCausedBySignalID, e.CausedBySignalID)
	dst = appendOptional(dst, fieldParentEventID, e.ParentEventID)
	dst = appendOptional(dst, fieldExtensions, e.Extensions)
	return appendField(dst, fieldContractVersion, e.Contract.String())
}

func (e *Event) appendUnlessAbsent(dst []byte, number byte, bit Absent, text string) []byte {
	if e.Absent&bit != 0 {
		return dst
	}
	return appendField(dst, number, text)
}

func appendOptional[T string | []byte](dst []byte, number byte, text T) []byte {
	if len(text) == 0 {
		return dst
	}
	return appendField(dst, number, text)
}

func appendField[T string | []byte](dst []byte, number byte, value T) []byte {
	dst = append(dst, number)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(value)))
	return append(dst, value...)
}

func appendNumberField(dst []byte, number byte, value uint64) []byte {
	dst = append(dst, number, 0, 0, 0, 8)
	return binary.BigEndian.AppendUint64(dst, value)
}

// EventIDText is the length of String in bytes.
const EventIDText = 36

// String returns the UUID in its plain 36-character form, lower case.
func (id EventID) String() string {
	text := id.text()
	return string(text[:])
}

// Append appends what String returns.
func (id EventID) Append(dst []byte) []byte {
	text := id.text()
	return append(dst, text[:]...)
}

func (id EventID) text() (b [EventIDText]byte) {
	hex.Encode(b[:], id[:4])
	b[8] = '-'
	hex.Encode(b[9:], id[4:6])
	b[13] = '-'
	hex.Encode(b[14:], id[6:8])
	b[18] = '-'
	hex.Encode(b[19:], id[8:10])
	b[23] = '-'
	hex.Encode(b[24:], id[10:])
	return b
}

// String returns the salt as lower-case hex, the form in which the API shows it.
func (s Salt) String() string { return hex.EncodeToString(s[:]) }

// String returns the digest as lower-case hex, the form in which the API shows it.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

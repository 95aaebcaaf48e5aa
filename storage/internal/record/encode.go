package record

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/klauspost/compress/s2"
	"google.golang.org/protobuf/encoding/protowire"

	"runlog/proto/contract"
)

// EncodeAppend turns a request into the command that goes into the log. All events must name the
// same scope or leave it out: ScopeOf tells.
func EncodeAppend(a *Append) (Command, error) {
	e := encoders.Get().(*encoder)
	defer e.release()
	if err := e.append(a); err != nil {
		return Command{}, err
	}
	data := make([]byte, 0, protowire.SizeTag(fieldAppend)+protowire.SizeBytes(len(e.message)))
	return Command{data: appendBytes(data, fieldAppend, e.message)}, nil
}

// AppendOperation turns a request into an operation of a compound command. EncodeAppend is for a
// command that has nothing else.
func AppendOperation(a *Append) (Operation, error) {
	e := encoders.Get().(*encoder)
	defer e.release()
	if err := e.append(a); err != nil {
		return Operation{}, err
	}
	return Operation{Kind: KindAppend, Data: bytes.Clone(e.message)}, nil
}

// encoder has the memory that one request is encoded in.
type encoder struct {
	message []byte            // the record.v1.Append
	body    []byte            // of one event
	raw     []byte            // bodies of the block that is being filled
	packed  []byte            // the block, compressed
	own     contract.Recorded // the event that is being encoded
	salts   []contract.Salt   // of the payloads of the request
	random  random
}

var encoders = sync.Pool{New: func() any { return new(encoder) }}

// maxEncoder is what one large request may leave behind.
const maxEncoder = 4 << 20

func (e *encoder) release() {
	e.own = contract.Recorded{} // A pool keeps no payloads,
	clear(e.salts)              // and no salts.
	if cap(e.message)+cap(e.body)+cap(e.raw)+cap(e.packed) <= maxEncoder {
		encoders.Put(e)
	}
}

// append writes the record.v1.Append of a request into message, field by field in their order, as
// proto.Marshal would from a message made for it. That took twice as long.
func (e *encoder) append(a *Append) error {
	scope, err := ScopeOf(a)
	if err != nil {
		return err
	}
	if n := len(a.Imported); n > 0 && n != len(a.Events) {
		return fmt.Errorf("storage: encode command: %d events, %d of them imported", len(a.Events), n)
	}
	if err := e.saltAll(a); err != nil {
		return err
	}
	plan, planned := planOf(a)
	if err := checkTexts(a, &scope, &plan); err != nil {
		return err
	}
	m := appendString(e.message[:0], 1, a.RunID)
	m = appendBytes(m, 2, appendScope(e.body[:0], &scope))
	if planned {
		m = appendBytes(m, 3, plan.append(e.body[:0]))
	}
	m = appendOptional(m, 4, a.ExpectedLastSeq)
	if a.Create != nil {
		md := EncodeMetadata(&a.Create.Metadata)
		md.Created = true
		create, err := Marshal(md)
		if err != nil {
			return err
		}
		m = appendBytes(m, 5, create)
	}
	if m, err = e.headers(m, a); err != nil {
		return err
	}
	if m, err = e.blocks(m, a, &plan); err != nil {
		return err
	}
	if len(a.Events) > 0 {
		m = appendNumber(m, 8, uint64(a.Events[0].Absent))
	}
	if len(a.Imported) > 0 {
		m = protowire.AppendTag(m, 9, protowire.BytesType)
		m = protowire.AppendVarint(m, uint64(AssignedSize*len(a.Imported)))
		for i := range a.Imported {
			m = appendAssigned(m, &a.Imported[i], &a.Events[i])
		}
	}
	m = appendOptional(m, 10, a.Fence)
	m = appendRecurrences(m, a.Events)
	if a.Create != nil && a.Exclusive {
		m = appendNumber(m, 12, 1)
	}
	m = appendChanges(m, a.Events)
	if a.OnlyNew {
		m = appendNumber(m, 14, 1)
	}
	m = appendNotices(m, a.Events)
	if !a.Keyed {
		key := a.ReceiptKey
		if key == (ReceiptKey{}) {
			e.random.read(key[:])
		}
		m = appendBytes(m, 16, key[:])
	}
	e.message = m
	return nil
}

// saltAll sets the salts of a request.
func (e *encoder) saltAll(a *Append) error {
	switch len(a.Salts) {
	case len(a.Events):
		e.salts = append(e.salts[:0], a.Salts...)
	case 0:
		e.salts = slices.Grow(e.salts[:0], len(a.Events))[:len(a.Events)]
		for i := range e.salts {
			e.random.read(e.salts[i][:])
		}
	default:
		return fmt.Errorf("storage: encode command: %d salts of %d events", len(a.Salts), len(a.Events))
	}
	return nil
}

// checkTexts refuses what a record.v1.Append cannot have outside of its bodies: apply would stop
// every node at a text that is not UTF-8.
func checkTexts(a *Append, scope *Scope, plan *planName) error {
	valid := utf8.ValidString(a.RunID) && utf8.ValidString(a.AppendedBy.Name) && utf8.ValidString(a.AppendedBy.TokenID) &&
		utf8.ValidString(scope.TenantID) && utf8.ValidString(scope.ProjectID) && utf8.ValidString(scope.EnvironmentID) &&
		utf8.ValidString(plan.id) && utf8.ValidString(plan.version)
	for i := range a.Imported {
		valid = valid && utf8.ValidString(a.Imported[i].Original.Source)
	}
	if !valid {
		return badText(a)
	}
	return nil
}

func badText(a *Append) error {
	return fmt.Errorf("storage: encode command: a text of run %q is not UTF-8", a.RunID)
}

// planOf returns the plan that the bodies of a request leave out; false: there is none.
func planOf(a *Append) (p planName, ok bool) {
	if a.Create != nil && a.Create.Metadata.PlanRef != nil {
		return planName{a.Create.Metadata.PlanRef.PlanID, a.Create.Metadata.PlanRef.PlanVersion}, true
	}
	if len(a.Events) > 0 {
		return planName{a.Events[0].PlanID, a.Events[0].PlanVersion}, true
	}
	return p, false
}

// planName is a record.v1.Plan to encode.
type planName struct{ id, version string }

func (p *planName) append(dst []byte) []byte {
	return appendString(appendString(dst, 1, p.id), 2, p.version)
}

func appendScope(dst []byte, s *Scope) []byte {
	return appendString(appendString(appendString(dst, 1, s.TenantID), 2, s.ProjectID), 3, s.EnvironmentID)
}

// headers appends the field of the headers.
func (e *encoder) headers(m []byte, a *Append) ([]byte, error) {
	if len(a.Events) == 0 {
		return m, nil
	}
	m = protowire.AppendTag(m, 6, protowire.BytesType)
	m = protowire.AppendVarint(m, uint64(HeaderSize*len(a.Events)))
	for i := range a.Events {
		if a.Events[i].LogicalAttemptID == 0 {
			return nil, fmt.Errorf("storage: encode command: event %d has no attempt", i)
		}
		m = appendHeader(m, &a.Events[i], e.salts[i], a.AppendedBy, a.original(i))
	}
	return m, nil
}

// appendRecurrences appends the field of the events whose type recurs, if there are any.
func appendRecurrences(m []byte, events []contract.Event) []byte {
	var rows []byte
	for i := range events {
		rows = appendRecurrence(rows, i, &events[i])
	}
	if len(rows) == 0 {
		return m
	}
	return appendBytes(m, 11, rows)
}

// appendChanges appends the field of the events that may change the run's status, if there are any.
func appendChanges(m []byte, events []contract.Event) []byte {
	var rows []byte
	for i := range events {
		if contract.ChangesStatus(events[i].Type) {
			rows = append(binary.BigEndian.AppendUint32(rows, uint32(i)), byte(contract.TypeCode(events[i].Type)))
		}
	}
	if len(rows) == 0 {
		return m
	}
	return appendBytes(m, 13, rows)
}

// blocks packs the bodies of a request's events, in order, into blocks of about blockTarget bytes.
func (e *encoder) blocks(m []byte, a *Append, plan *planName) ([]byte, error) {
	e.raw = e.raw[:0]
	e.own = contract.Recorded{AppendedBy: a.AppendedBy}
	count := uint64(0)
	for i := range a.Events {
		e.own.Event, e.own.PayloadSalt = a.Events[i], e.salts[i]
		if len(a.Imported) > 0 {
			e.own.RunSeq, e.own.Original = a.Imported[i].RunSeq, a.Imported[i].Original
		}
		var ok bool
		if e.body, ok = appendBody(e.body[:0], &e.own, plan); !ok {
			return nil, badText(a)
		}
		e.raw = protowire.AppendBytes(e.raw, e.body)
		if len(e.raw) > maxBlock {
			return nil, fmt.Errorf("storage: encode event %d: block of %d bytes", i, len(e.raw))
		}
		count++
		if len(e.raw) >= blockTarget || i == len(a.Events)-1 {
			m = e.block(m, count)
			e.raw, count = e.raw[:0], 0
		}
	}
	return m, nil
}

// block appends the block that is being filled.
func (e *encoder) block(m []byte, count uint64) []byte {
	codec, data := uint64(codecRaw), e.raw
	if len(e.raw) >= compressFrom {
		most := s2.MaxEncodedLen(len(e.raw))
		e.packed = slices.Grow(e.packed[:0], most)
		if packed := s2.Encode(e.packed[:most], e.raw); len(packed) < len(e.raw)*15/16 {
			codec, data = CodecS2, packed
		}
	}
	var stack [32]byte
	sizes := appendNumber(stack[:0], 1, count)
	sizes = appendNumber(sizes, 2, codec)
	sizes = appendNumber(sizes, 3, uint64(len(e.raw)))
	m = protowire.AppendTag(m, 7, protowire.BytesType)
	m = protowire.AppendVarint(m, uint64(len(sizes)+protowire.SizeTag(4)+protowire.SizeBytes(len(data))))
	return appendBytes(append(m, sizes...), 4, data)
}

// The appenders of a field leave out what is zero, as proto3 does, but for bytes and optional
// numbers.

func appendString(dst []byte, number protowire.Number, s string) []byte {
	if s == "" {
		return dst
	}
	return protowire.AppendString(protowire.AppendTag(dst, number, protowire.BytesType), s)
}

func appendBytes(dst []byte, number protowire.Number, b []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(dst, number, protowire.BytesType), b)
}

func appendNumber(dst []byte, number protowire.Number, n uint64) []byte {
	if n == 0 {
		return dst
	}
	return protowire.AppendVarint(protowire.AppendTag(dst, number, protowire.VarintType), n)
}

func appendOptional(dst []byte, number protowire.Number, n *uint64) []byte {
	if n == nil {
		return dst
	}
	return protowire.AppendVarint(protowire.AppendTag(dst, number, protowire.VarintType), *n)
}

func appendFixed(dst []byte, number protowire.Number, n int64) []byte {
	if n == 0 {
		return dst
	}
	return protowire.AppendFixed64(protowire.AppendTag(dst, number, protowire.Fixed64Type), uint64(n))
}

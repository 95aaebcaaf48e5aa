package record

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	recordv1 "runlog/proto/record/v1"
)

// The messages of record.v1 that every event passes through are decoded here by hand, into values
// that alias the bytes: proto.Unmarshal copies them (docs/adr/0007 has the figures).

var errWire = errors.New("storage: not a message of record.v1")

// field is one field of a message: bits of a scalar, or bytes.
type field struct {
	number protowire.Number
	kind   protowire.Type
	bits   uint64
	bytes  []byte
}

// walkFields calls visit for every field of a message, in order.
func walkFields(data []byte, visit func(f field) error) error {
	for len(data) > 0 {
		var f field
		var n int
		if f.number, f.kind, n = protowire.ConsumeTag(data); n < 0 {
			return fmt.Errorf("%w: bad tag", errWire)
		}
		data = data[n:]
		switch f.kind {
		case protowire.VarintType:
			f.bits, n = protowire.ConsumeVarint(data)
		case protowire.Fixed64Type:
			f.bits, n = protowire.ConsumeFixed64(data)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(data)
		default:
			n = -1
		}
		if n < 0 {
			return fmt.Errorf("%w: field %d", errWire, f.number)
		}
		data = data[n:]
		if err := visit(f); err != nil {
			return err
		}
	}
	return nil
}

// uint32 of a varint field; it sets err where the field is something else.
func (f *field) uint32(err *error) uint32 {
	f.want(protowire.VarintType, err)
	return uint32(f.bits)
}

// optional returns the number of an optional varint field. It is a copy: a pointer into the field
// would put every field of every message on the heap.
func (f *field) optional(err *error) *uint64 {
	f.want(protowire.VarintType, err)
	n := f.bits
	return &n
}

// text of a string field, as bytes that alias the message.
func (f *field) text(err *error) []byte {
	f.want(protowire.BytesType, err)
	if !utf8.Valid(f.bytes) {
		*err = fmt.Errorf("%w: field %d is not UTF-8", errWire, f.number)
	}
	return f.bytes
}

func (f *field) raw(err *error) []byte {
	f.want(protowire.BytesType, err)
	return f.bytes
}

func (f *field) want(kind protowire.Type, err *error) {
	if f.kind != kind {
		*err = fmt.Errorf("%w: field %d has wire type %d", errWire, f.number, f.kind)
	}
}

// planText is a Plan that aliases its message.
type planText struct{ id, version []byte }

// Is reports whether two plans are the same.
func (p *planText) Is(plan *recordv1.Plan) bool {
	return string(p.id) == plan.GetPlanId() && string(p.version) == plan.GetPlanVersion()
}

// Message copies the plan.
func (p *planText) Message() *recordv1.Plan {
	return &recordv1.Plan{PlanId: string(p.id), PlanVersion: string(p.version)}
}

func parsePlan(data []byte) (p planText, err error) {
	err = walkFields(data, func(f field) (err error) {
		switch f.number {
		case 1:
			p.id = f.text(&err)
		case 2:
			p.version = f.text(&err)
		}
		return err
	})
	return p, err
}

// ScopeText is a Scope that aliases its message.
type ScopeText struct{ Tenant, Project, Environment []byte }

// Message copies the scope.
func (s *ScopeText) Message() *recordv1.Scope {
	return &recordv1.Scope{TenantId: string(s.Tenant), ProjectId: string(s.Project), EnvironmentId: string(s.Environment)}
}

func parseScope(data []byte) (s ScopeText, err error) {
	err = walkFields(data, func(f field) (err error) {
		switch f.number {
		case 1:
			s.Tenant = f.text(&err)
		case 2:
			s.Project = f.text(&err)
		case 3:
			s.Environment = f.text(&err)
		}
		return err
	})
	return s, err
}

// Bodies is a Block of a command.
type Bodies struct {
	Count   uint32
	Codec   uint32
	RawSize uint32
	Data    []byte
}

func parseBodies(data []byte) (b Bodies, err error) {
	err = walkFields(data, func(f field) (err error) {
		switch f.number {
		case 1:
			b.Count = f.uint32(&err)
		case 2:
			b.Codec = f.uint32(&err)
		case 3:
			b.RawSize = f.uint32(&err)
		case 4:
			b.Data = f.raw(&err)
		}
		return err
	})
	return b, err
}

// AppendCommand is a decoded Append. It aliases the log entry.
type AppendCommand struct {
	RunID    []byte
	Scope    ScopeText
	Plan     planText
	Expected *uint64
	Create   *recordv1.RunMetadata // nil: none
	Headers  []byte
	Blocks   []Bodies
	Absent   contract.Absent // of the first event
	Assigned []byte          // of an import; else empty
	Fence    *uint64         // nil: none given

	Recurrences Recurrences
	Exclusive   bool // the run must not exist
	Changes     Changes
	OnlyNew     bool // every event must be new
	Notices     Notices
	ReceiptKey  []byte // brought along for a cluster without one; else empty
}

// Forget lets go of the log entry.
func (c *AppendCommand) Forget() {
	clear(c.Blocks)
	*c = AppendCommand{Blocks: c.Blocks[:0]}
}

// Parse replaces what c holds; its memory is used again.
func (c *AppendCommand) Parse(data []byte) error {
	c.Forget()
	return walkFields(data, func(f field) (err error) {
		switch f.number {
		case 1:
			c.RunID = f.text(&err)
		case 2:
			c.Scope, err = parseScope(f.bytes)
		case 3:
			c.Plan, err = parsePlan(f.bytes)
		case 4:
			c.Expected = f.optional(&err)
		case 5:
			c.Create = &recordv1.RunMetadata{}
			err = proto.Unmarshal(f.bytes, c.Create)
		case 6:
			c.Headers = f.raw(&err)
		case 7:
			var b Bodies
			b, err = parseBodies(f.bytes)
			c.Blocks = append(c.Blocks, b)
		case 8:
			c.Absent = contract.Absent(f.uint32(&err))
		case 9:
			c.Assigned = f.raw(&err)
		case 10:
			c.Fence = f.optional(&err)
		case 11:
			c.Recurrences, err = parseRecurrences(f.raw(&err))
		case 12:
			c.Exclusive = f.uint32(&err) != 0
		case 13:
			c.Changes, err = parseChanges(f.raw(&err))
		case 14:
			c.OnlyNew = f.uint32(&err) != 0
		case 15:
			c.Notices, err = parseNotices(f.raw(&err))
		case 16:
			c.ReceiptKey = f.raw(&err)
		}
		return err
	})
}

// body is a decoded Body. Its payload, extensions, eventID and salt alias its block.
type body struct {
	record   Record // without its eventId and its salt, and what the run says of it
	eventID  []byte
	salt     []byte
	typeCode uint32    // 0: the record has the type
	plan     *planText // nil: the block's
}

func (b *body) parse(data []byte) error {
	r := &b.record.Recorded
	return walkFields(data, func(f field) (err error) {
		switch f.number {
		case bodyTypeCode:
			b.typeCode = f.uint32(&err)
			return err
		case bodyPlan:
			var p planText
			p, err = parsePlan(f.bytes)
			b.plan = &p
			return err
		}
		if int(f.number) >= len(bodyNumbers) || bodyNumbers[f.number] == nil {
			return nil
		}
		switch to := bodyNumbers[f.number]; to.Kind {
		case contract.KindText:
			*to.Text(r) = string(f.text(&err))
		case contract.KindCount:
			*to.Count(r) = f.uint32(&err)
		case contract.KindNumber:
			f.want(protowire.VarintType, &err)
			*to.Number(r) = f.bits
		case contract.KindTime:
			f.want(protowire.Fixed64Type, &err)
			*to.Time(r) = int64(f.bits)
		case contract.KindEventID:
			b.eventID = f.raw(&err)
		case contract.KindSalt:
			b.salt = f.raw(&err)
		case contract.KindLine:
			*to.Line(r) = contract.Line(f.uint32(&err))
		case contract.KindNames:
			*to.Names(r) = contract.Absent(f.uint32(&err))
		case contract.KindObject:
			*to.Object(r) = f.raw(&err)
		default:
			panic("storage: a field that no body can have: " + to.Name)
		}
		return err
	})
}

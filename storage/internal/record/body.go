package record

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"runlog/proto/contract"
	recordv1 "runlog/proto/record/v1"
)

// Codecs of a block.
const (
	codecRaw = 0
	CodecS2  = 1
)

// ErrBody means that the body of an event cannot be decoded.
var ErrBody = errors.New("storage: undecodable event body")

// Fields of a record.v1.Body that the walks over the table of fields treat specially.
const (
	bodyTypeCode = 2 // in place of bodyTypeName
	bodyTypeName = 3
	bodyKey      = 7
	bodyAbsent   = 14
	bodyPlan     = 15 // both fields of the plan
)

var (
	// bodyFields are those of a body, in the order of their numbers.
	bodyFields = func() (all []contract.Field) {
		for _, f := range contract.Fields() {
			if f.Body != 0 {
				all = append(all, f)
			}
		}
		if err := checkBody(all, (&recordv1.Body{}).ProtoReflect().Descriptor()); err != nil {
			panic(fmt.Sprintf("storage: the table of fields (contract.Fields) and record.v1.Body: %v", err))
		}
		slices.SortFunc(all, func(a, b contract.Field) int { return cmp.Compare(a.Body, b.Body) })
		return all
	}()
	// bodyNumbers has the field of each number; nil: none.
	bodyNumbers = func() (all [contract.BodyNumbers]*contract.Field) {
		for i := range bodyFields {
			all[bodyFields[i].Body] = &bodyFields[i]
		}
		return all
	}()
)

// appendBody appends an event as a record.v1.Body. It leaves out what the run, the plan of the
// block or the derived key already say (D6). The event has a runSeq and an original only if it is
// imported, and no digests. It returns false if a text is not UTF-8.
func appendBody(dst []byte, r *contract.Recorded, plan *planName) (_ []byte, valid bool) {
	valid = true
	for i := range bodyFields {
		f := &bodyFields[i]
		number := protowire.Number(f.Body)
		if f.Kind == contract.KindText { // as most are
			text := *f.Text(r)
			if text == "" || number == bodyKey && r.KeyDerived {
				continue
			}
			if number == bodyTypeName {
				if code := contract.TypeCode(text); code != 0 {
					dst = appendNumber(dst, bodyTypeCode, uint64(code))
					continue
				}
			}
			valid = valid && utf8.ValidString(text)
			dst = appendString(dst, number, text)
			continue
		}
		switch f.Kind {
		case contract.KindCount:
			dst = appendNumber(dst, number, uint64(*f.Count(r)))
		case contract.KindNumber:
			dst = appendNumber(dst, number, *f.Number(r))
		case contract.KindTime:
			dst = appendFixed(dst, number, *f.Time(r))
		case contract.KindEventID:
			dst = appendBytes(dst, number, f.EventID(r)[:])
		case contract.KindSalt:
			dst = appendBytes(dst, number, f.Salt(r)[:])
		case contract.KindLine:
			dst = appendNumber(dst, number, uint64(*f.Line(r)))
		case contract.KindNames:
			dst = appendNumber(dst, number, uint64(*f.Names(r)))
			if namesOtherPlan(&r.Event, plan) { // bodyPlan follows bodyAbsent
				var stack [128]byte
				own := planName{r.PlanID, r.PlanVersion}
				valid = valid && utf8.ValidString(own.id) && utf8.ValidString(own.version)
				dst = appendBytes(dst, bodyPlan, own.append(stack[:0]))
			}
		case contract.KindObject:
			if object := *f.Object(r); len(object) > 0 {
				dst = appendBytes(dst, number, object)
			}
		default:
			panic("storage: a field that no body can have: " + f.Name)
		}
	}
	return dst, valid
}

func namesOtherPlan(e *contract.Event, plan *planName) bool {
	return e.Absent&contract.AbsentPlan == 0 && e.PlanID != plan.id ||
		e.Absent&contract.AbsentPlanVersion == 0 && e.PlanVersion != plan.version
}

// NextBody splits raw into its first body and the rest.
func NextBody(raw []byte) (body, rest []byte, err error) {
	n, w := binary.Uvarint(raw)
	if w <= 0 || n > uint64(len(raw)-w) {
		return nil, nil, fmt.Errorf("%w: bad length", ErrBody)
	}
	return raw[w : w+int(n)], raw[w+int(n):], nil
}

// parseBody decodes an event of a run. The run's scope and plan fill in absent fields (ENV-1); plan
// is the block's. The record has nothing that is not in the body: RunSeq is 0 unless the event was
// imported. Payload and extensions alias data; nothing else does. A derived key is left out unless
// keyed: it costs a hash.
func parseBody(data []byte, run *recordv1.RunIdentity, plan *recordv1.Plan, keyed bool) (Record, error) {
	var b body
	if err := b.parse(data); err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrBody, err)
	}
	if len(b.eventID) != len(contract.EventID{}) {
		return Record{}, fmt.Errorf("%w: event id of %d bytes", ErrBody, len(b.eventID))
	}
	if len(b.salt) != len(contract.Salt{}) {
		return Record{}, fmt.Errorf("%w: payload salt of %d bytes", ErrBody, len(b.salt))
	}
	b.record.PayloadSalt = contract.Salt(b.salt)
	e := &b.record.Event
	e.EventID = contract.EventID(b.eventID)
	e.RunID = run.GetRunId()
	scope := run.GetScope()
	e.TenantID, e.ProjectID, e.EnvironmentID = scope.GetTenantId(), scope.GetProjectId(), scope.GetEnvironmentId()
	if b.typeCode != 0 {
		name, ok := contract.TypeName(b.typeCode)
		if !ok {
			return Record{}, fmt.Errorf("%w: event type %d", ErrBody, b.typeCode)
		}
		e.Type = name
	}
	fillPlan(e, &b, run, plan)
	if e.IdempotencyKey == "" {
		e.KeyDerived = true
		if keyed {
			e.IdempotencyKey = contract.DeriveKey(e.Contract, e.RunID, e.StepID, e.LogicalAttemptID, e.EngineAttemptID, e.Type, e.PlanID, e.PlanVersion)
		}
	}
	return b.record, nil
}

func fillPlan(e *contract.Event, b *body, run *recordv1.RunIdentity, plan *recordv1.Plan) {
	e.PlanID, e.PlanVersion = plan.GetPlanId(), plan.GetPlanVersion()
	if b.plan != nil {
		e.PlanID, e.PlanVersion = string(b.plan.id), string(b.plan.version)
	}
	if e.Absent&contract.AbsentPlan != 0 {
		e.PlanID = run.GetPlan().GetPlanId()
	}
	if e.Absent&contract.AbsentPlanVersion != 0 {
		e.PlanVersion = run.GetPlan().GetPlanVersion()
	}
}

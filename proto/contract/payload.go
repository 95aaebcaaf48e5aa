package contract

import (
	"fmt"

	"runlog/proto/contract/jsontext"
	"runlog/proto/contract/schema"
	runlogv1 "runlog/proto/runlog/v1"
)

// emptyPayload is stored for an event without a payload.
const emptyPayload = "{}"

// payload takes the payload: JSON bytes as they are (ENV-8), a Struct as canonical JSON, nothing as
// an empty object. Only a payload that is a JSON object of a legal size, and on a known type valid
// by its schema (ENV-5), is set.
func (c *checker) payload() {
	if s, ok := c.w.GetPayloadForm().(*runlogv1.EventWrite_Payload); ok {
		c.structPayload(s)
		return
	}
	b := c.w.GetPayloadJson()
	if len(b) == 0 {
		b = []byte(emptyPayload)
	}
	if c.tooLarge(len(b)) {
		return
	}
	c.takePayload(b)
}

// takePayload sets a payload once it is known to be one JSON object that its schema has nothing
// against. The usual payload is accepted in one pass; only what is not is looked at more closely.
func (c *checker) takePayload(b []byte) {
	r := c.rule()
	if r != nil && r.Accepts(b) {
		c.e.Payload = b
		return
	}
	if pos, fault := jsontext.CheckObject(b, MaxDepth); fault != 0 {
		c.failPayload("payload", "must be one JSON object in UTF-8; at byte %d: %s", pos, fault)
		return
	}
	if r != nil && !c.explained(r, b) {
		return
	}
	c.e.Payload = b
}

// explained reports whether a payload of a known type is accepted, with warnings where it has
// optional fields of an unexpected form (ENV-9) and values that a snapshot cannot show (ENV-12), or
// reports what is wrong with it (ENV-5).
func (c *checker) explained(r *schema.Rule, payload []byte) bool {
	faults, remarks, unshown := r.Faults(payload, MaxViolations+1)
	remarks = append(remarks, unshown...)
	for _, f := range faults {
		c.bad = append(c.bad, Violation{Field: "payload" + f.Path, Reason: ReasonSchemaValidationFailed, Description: f.Description})
	}
	for _, f := range remarks[:min(len(remarks), maxWarnings)] {
		c.e.Warnings = append(c.e.Warnings, Warning{Field: "payload" + f.Path, Description: f.Description})
	}
	if len(faults) > 0 {
		c.payloadHidesKey()
	}
	return len(faults) == 0
}

// maxWarnings bounds the warnings about one event.
const maxWarnings = 20

// extensions takes the extensions byte for byte.
func (c *checker) extensions() {
	b := c.w.GetExtensionsJson()
	if len(b) == 0 {
		return
	}
	if len(b) > MaxExtensionsBytes {
		c.fail("extensions", "is %d bytes, the limit is %d: put the data into the payload, or store it elsewhere", len(b), MaxExtensionsBytes)
		return
	}
	if pos, fault := jsontext.CheckObject(b, MaxDepth); fault != 0 {
		c.fail("extensions", "must be one JSON object in UTF-8; at byte %d: %s", pos, fault)
		return
	}
	c.e.Extensions = b
}

// rule returns what the schema of the event's type says about its payload; nil for an unknown type,
// of which nothing is asked (ENV-6), and for an event of no known line.
func (c *checker) rule() *schema.Rule {
	if c.noLine {
		return nil
	}
	return payloadRule(c.e.Contract, c.e.Type)
}

func (c *checker) structPayload(form *runlogv1.EventWrite_Payload) {
	b, path, fault := EncodeStruct(form.Payload)
	if fault != "" {
		c.failPayload("payload"+path, "%s", fault)
		return
	}
	if !c.tooLarge(len(b)) {
		c.takePayload(b)
	}
}

func (c *checker) tooLarge(size int) bool {
	limit := c.o.maxPayloadBytes()
	if size <= limit {
		return false
	}
	c.payloadHidesKey()
	c.bad = append(c.bad, Violation{
		Field:       "payload",
		Reason:      ReasonPayloadTooLarge,
		Description: fmt.Sprintf("is %d bytes, the limit is %d: store the data elsewhere and send a reference to it", size, limit),
	})
	return true
}

func (c *checker) failPayload(field, format string, args ...any) {
	c.payloadHidesKey()
	c.fail(field, format, args...)
}

// payloadHidesKey notes that an unusable payload may hide the plan that the key is derived from.
func (c *checker) payloadHidesKey() {
	if c.e.Contract == Line11 && c.e.Type == RunStarted {
		c.keyable = false
	}
}

// fillFromPayload takes what a 1.1 RunStarted says about scope and plan in its payload and not on
// its envelope (ENV-1). Its schema requires the five to be there, and to be strings that are not
// empty.
func (c *checker) fillFromPayload() {
	e, w := &c.e, c.w
	context, _ := jsontext.Lookup(e.Payload, "context")
	c.fill(context, "context", "tenantId", w.GetTenantId(), &e.TenantID, TenantFault)
	c.fill(context, "context", "projectId", w.GetProjectId(), &e.ProjectID, ScopeFault)
	c.fill(context, "context", "environmentId", w.GetEnvironmentId(), &e.EnvironmentID, ScopeFault)
	planRef, _ := jsontext.Lookup(e.Payload, "planRef")
	c.fill(planRef, "planRef", "planId", w.GetPlanId(), &e.PlanID, NameFault)
	c.fill(planRef, "planRef", "planVersion", w.GetPlanVersion(), &e.PlanVersion, NameFault)
}

// fill sets dst from a string member of a part of the payload, unless the envelope names the field.
func (c *checker) fill(part []byte, partName, name, named string, dst *string, faultOf func(string) string) {
	raw, ok := jsontext.Lookup(part, name)
	if named != "" || !ok {
		return
	}
	text := jsontext.Unquote(raw)
	if fault := faultOf(text); fault != "" {
		c.failPayload("payload/"+partName+"/"+name, "%s", fault)
		return
	}
	*dst = text
}

package contract

import (
	"fmt"

	runlogv1 "runlog/proto/runlog/v1"
)

// emptyPayload is stored for an event without a payload.
const emptyPayload = "{}"

// payload takes the payload: JSON bytes as they are (ENV-8), a Struct as canonical JSON, nothing as an
// empty object. Only a payload that is a JSON object of a legal size is set. The JSON Schemas of known
// types (ENV-5) are checked from here once they ship.
func (c *checker) payload() {
	if s, ok := c.w.GetPayloadForm().(*runlogv1.EventWrite_Payload); ok {
		c.structPayload(s)
		return
	}
	b := c.w.GetPayloadJson()
	if len(b) == 0 {
		c.e.Payload = []byte(emptyPayload)
		return
	}
	if c.tooLarge(len(b)) {
		return
	}
	if pos, fault := checkObject(b); fault != "" {
		c.failPayload("payload", "must be one JSON object in UTF-8; at byte %d: %s", pos, fault)
		return
	}
	c.e.Payload = b
}

func (c *checker) structPayload(form *runlogv1.EventWrite_Payload) {
	b, path, fault := encodeStruct(form.Payload)
	if fault != "" {
		c.failPayload("payload"+path, "%s", fault)
		return
	}
	if !c.tooLarge(len(b)) {
		c.e.Payload = b
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

// fillFromPayload takes what a 1.1 RunStarted says about scope and plan in its payload and not on its
// envelope (ENV-1).
func (c *checker) fillFromPayload() {
	e, w := &c.e, c.w
	// Of something else than an object, lookup finds nothing; its schema will say so one day (ENV-5).
	context, _ := lookup(e.Payload, "context")
	c.fill(context, "context", "tenantId", w.GetTenantId(), &e.TenantID, TextFault)
	c.fill(context, "context", "projectId", w.GetProjectId(), &e.ProjectID, TextFault)
	c.fill(context, "context", "environmentId", w.GetEnvironmentId(), &e.EnvironmentID, TextFault)
	planRef, _ := lookup(e.Payload, "planRef")
	c.fill(planRef, "planRef", "planId", w.GetPlanId(), &e.PlanID, NameFault)
	c.fill(planRef, "planRef", "planVersion", w.GetPlanVersion(), &e.PlanVersion, NameFault)
}

// fill sets dst from a string member of a part of the payload, unless the envelope names the field. As
// on the envelope, an empty string is an absent field.
func (c *checker) fill(part []byte, partName, name, named string, dst *string, faultOf func(string) string) {
	if named != "" {
		return
	}
	raw, ok := lookup(part, name)
	if !ok || string(raw) == "null" {
		return
	}
	field := "payload." + partName + "." + name
	if raw[0] != '"' {
		c.failPayload(field, "must be a JSON string, as the envelope takes its %s from it", name)
		return
	}
	text := unquote(raw)
	if text == "" {
		return
	}
	if fault := faultOf(text); fault != "" {
		c.failPayload(field, "%s", fault)
		return
	}
	*dst = text
}

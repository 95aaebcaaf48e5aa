package contract

// field is a field of the envelope in an event's JSON text. A field that holds an object is
// followed by its form in base64.
type field uint8

const (
	noField field = iota
	eventIDField
	eventTypeField
	runIDField
	tenantIDField
	projectIDField
	environmentIDField
	planIDField
	planVersionField
	stepIDField
	logicalAttemptField
	engineAttemptField
	keyField
	emittedAtField
	emittedByField
	causeField
	parentField
	contractField
	payloadField
	payloadJSONField
	extensionsField
	extensionsJSONField
)

var fieldNames = [...]string{
	eventIDField: "eventId", eventTypeField: "eventType", runIDField: "runId", tenantIDField: "tenantId",
	projectIDField: "projectId", environmentIDField: "environmentId", planIDField: "planId",
	planVersionField: "planVersion", stepIDField: "stepId", logicalAttemptField: "logicalAttemptId",
	engineAttemptField: "engineAttemptId", keyField: "idempotencyKey", emittedAtField: "emittedAt",
	emittedByField: "emittedBy", causeField: "causedBySignalId", parentField: "parentEventId",
	contractField: "contractVersion", payloadField: "payload", payloadJSONField: "payloadJson",
	extensionsField: "extensions", extensionsJSONField: "extensionsJson",
}

// String returns the name in lowerCamel case.
func (f field) String() string { return fieldNames[f] }

// fieldOf returns the field that a JSON member stands for, in lowerCamel or snake case (contract
// section 2).
func fieldOf(name []byte) field {
	switch string(name) {
	case "eventId", "event_id":
		return eventIDField
	case "eventType", "event_type":
		return eventTypeField
	case "runId", "run_id":
		return runIDField
	case "tenantId", "tenant_id":
		return tenantIDField
	case "projectId", "project_id":
		return projectIDField
	case "environmentId", "environment_id":
		return environmentIDField
	case "planId", "plan_id":
		return planIDField
	case "planVersion", "plan_version":
		return planVersionField
	case "stepId", "step_id":
		return stepIDField
	case "logicalAttemptId", "logical_attempt_id":
		return logicalAttemptField
	case "engineAttemptId", "engine_attempt_id":
		return engineAttemptField
	case "idempotencyKey", "idempotency_key":
		return keyField
	case "emittedAt", "emitted_at":
		return emittedAtField
	case "emittedBy", "emitted_by":
		return emittedByField
	case "causedBySignalId", "caused_by_signal_id":
		return causeField
	case "parentEventId", "parent_event_id":
		return parentField
	case "contractVersion", "contract_version":
		return contractField
	case "payload":
		return payloadField
	case "payloadJson", "payload_json":
		return payloadJSONField
	case "extensions":
		return extensionsField
	case "extensionsJson", "extensions_json":
		return extensionsJSONField
	}
	return noField
}

// isServerAssigned reports whether a member of a record is one that its producer never writes.
func isServerAssigned(name string) bool {
	switch name {
	case "runSeq", "run_seq", "persistedAt", "persisted_at":
		return true
	}
	return false
}

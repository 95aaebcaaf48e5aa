package contract

import "strings"

// flatRunStarted is the example of a 1.1 RunStarted, a flat event whose members beside the envelope
// are its payload.
const flatRunStarted = `{
  "eventType": "RunStarted",
  "eventId": "01234567-89ab-cdef-0123-456789abcdef",
  "runId": "run_2026-02-11_abc123",
  "runSeq": 2,
  "idempotencyKey": "d2a84f4b8b650937ec8f73cd8be2c74add5a911ba64df27458ed8229da804a26",
  "emittedAt": "2026-02-11T10:30:00.000Z",
  "emittedBy": "engine",
  "contractVersion": "1.1",
  "status": "RUNNING",
  "engineRunRef": "temporal://default/interpreter-workflow/run_2026-02-11_abc123/f47ac10b",
  "engineType": "temporal",
  "planRef": {
    "uri": "s3://dvt-plans/prod/plan_xyz_v1.2.json",
    "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "schemaVersion": "v1.2",
    "planId": "plan_xyz",
    "planVersion": "1.2"
  },
  "context": {
    "tenantId": "tenant_acme",
    "projectId": "proj_marketing",
    "environmentId": "prod",
    "triggeredBy": "user_jane",
    "triggerSource": "manual"
  },
  "startedAt": "2026-02-11T10:30:00.000Z"
}`

// nested is an object with so many levels, itself included.
func nested(begin, end string, levels int) string {
	return `{"a":` + strings.Repeat(begin, levels-1) + "1" + strings.Repeat(end, levels-1) + `}`
}

// Package cloudevent encodes stored events as CloudEvents 1.0 (BUS-7).
//
//	id               the runId, a slash, and the runSeq (ENV-10)
//	source           /runlog/<cluster>/<tenant>, each percent-encoded as a segment of a path
//	type             runlog.<EventType>
//	subject          the runId
//	time             persistedAt, UTC, with as many digits of the second as it has, up to nine
//	datacontenttype  application/json
//	eventid          the eventId, which is its producer's and may repeat
//	runseq           the runSeq, as a string
//	tenant           the tenantId; an event without one has no such attribute
//	position         the position, as other answers of the API name it
//	data             the payload, byte for byte as it is stored
//
// The runseq is a string because an Integer of CloudEvents has 32 bits.
//
// The encoder writes by hand, and trusts its input: texts are valid UTF-8, and the payload is JSON.
package cloudevent

// Package decode is the first stage of a request: it limits a message before it is decoded, decodes
// it, and explains why it cannot be decoded.
//
//	gRPC message ──► Guard: bytes, counts ──► proto.Unmarshal ──► the service and its validator
//	                                              ▲    │ refused: every field at fault
//	                                              │
//	HTTP body ─────► JSON: counts, syntax, events by the contract, protojson for the rest
//	HTTP query ────► Query                            │ refused: every field at fault
//
// A request is cheap to send and may be expensive to decode: two bytes make an event of hundreds.
// So repeated elements are counted in the encoded form, which is cheap, before they are decoded.
//
// Events in a body are read by the parser of package contract, so that a payload stays the text
// that was sent (ENV-8).
//
// The explanations run only after a decoder has refused. They pass every part to that decoder
// alone, so that no acceptable part is called a fault, and name each faulty part by its path in the
// request. If they find nothing, the error is the decoder's own text.
//
// The package does not depend on a server: faults are *contract.Error and contract.Violation.
package decode

// Package decode is the way in: what is looked at before a request is decoded, and what is said
// when it cannot be.
//
//	gRPC message ──► Guard: bytes, counts ──► proto.Unmarshal ──► the service and its validator
//	                                              ▲    │ refused: every field at fault
//	                                              │
//	HTTP body ─────► JSON: counts, syntax, flat events, protojson
//	HTTP query ────► Query                            │ refused: every field at fault
//
// A request costs little to send and may cost much to decode: two bytes make an event of hundreds.
// So whatever repeats is counted in the encoded form, where it is cheap, before it is made.
//
// The explaining half runs only after a decoder has refused. It asks that decoder about every part
// on its own, so that it never calls a fault what would have been taken, and names each part by its
// path in the request. When it finds nothing, the decoder's own words are all there is.
//
// Nothing here knows a server: faults are *contract.Error and contract.Violation.
package decode

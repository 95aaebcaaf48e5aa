// Package contract holds the rules that producers and the server share: what a valid event is,
// which key names it, which bytes prove it, and which reasons a refusal has.
//
//	one JSON line ──ParseEvent─┐
//	an HTTP body ──ReadEvent──►│
//	                           ▼
//	                    runlogv1.EventWrite ──ValidateAll──► []Event ──► batch, storage
//	                                                │
//	                                                └──► *Error: reason, every violation, remedy
//
// An [Event] is made once, at the gate, by [Validate] or [ValidateAll]; the rooms further in trust
// it. From an Event follow its idempotency key ([DeriveKey]), its canonical bytes and digests
// ([Event.AppendCanonical], [Event.Digests], [ChainDigest]) and the question whether a duplicate
// says something else than the stored event ([Event.ContentDigest], [SameContent]).
//
// The payload of a known type is checked against the JSON Schema of its line ([Schema], files in
// schemas/). A schema is compiled to a rule that runs over the payload's bytes in one pass,
// allocates nothing, and says either yes or look closer; only then is every violation looked for.
// Tests hold both against a JSON Schema library, which the binary does not need.
//
// Invariants:
//   - The codes of [TypeCode], the key text and the digests are persisted. They never change;
//     golden files in testdata and the vectors in docs/vectors fix them, and docs/formats.md
//     describes them byte by byte.
//   - Nothing here keeps state. Two calls with the same arguments give the same result, except that
//     an event without an eventId gets one from Options.NewEventID.
//   - Work and memory are bounded by the size of the input: JSON nests at most 64 levels.
//
// Rule ids such as ENV-3 are those of the contract.
package contract

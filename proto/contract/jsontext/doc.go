// Package jsontext scans JSON text (RFC 8259) in place. It is the only JSON scanner of the module;
// encoding/json and protojson decode whole values beside it.
//
//	bytes of unknown origin ──► CheckObject, Scan…  the first fault and its offset
//	                               │ no fault
//	                               ▼
//	checked text ──► Members, Elements, Lookup      values as written, duplicates included
//	                 SkipValue, SkipString          the end of a value
//	                 Unquote, Text, Plain           the text of a string
//	                 SplitNumber                    the digits of a number
//	                 Time, Size                     what validation and snapshots take a value for
//	AppendQuoted, Show, Quote                       the way back: JSON strings and error messages
//
// encoding/json reports neither duplicate members nor lone surrogates, replaces invalid UTF-8, and
// loses the offset of a value. The contract needs all four: it stores payload bytes as they came
// (ENV-8), compares them as values (IDM-7), and names the place of each fault.
//
// Invariants:
//   - The Scan functions and CheckObject accept exactly what encoding/json's Valid accepts, except
//     that they refuse invalid UTF-8 and more levels of nesting than the caller allows. A fuzz
//     test compares both.
//   - The walking half validates nothing, but is safe on any bytes: it never panics, and it stops
//     at the first place where it cannot go on. What it yields from given bytes never changes:
//     run snapshots, and so their digests, depend on it. So times are not read by package time,
//     whose notion of strict has changed before and still takes a comma for the point.
//   - Time and Size are the one reading of both sides (ENV-12): the answer to an append warns of a
//     value that the snapshot of its run cannot show, and the reducer shows all others.
//   - Nothing allocates, except Size and functions that return a new string or slice. Nothing
//     recurses.
package jsontext

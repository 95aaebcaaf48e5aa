// Package budget bounds the memory of requests in bytes (D12, SEC-6).
//
// Everything that grows with what callers send, or leave unread, draws from one Budget: bodies that
// arrive, decoded requests, events that wait for their answer, and answers. A draw that does not
// fit is refused at once with OVERLOADED, and nothing waits.
//
//	0          shared              arriving             all
//	├────────────┼────────────────────┼──────────────────┤
//	│ everything │ small appends that │ appends that     │
//	│            │ arrive             │ have arrived     │
//
// Each Class has a ceiling on what is in use in all. So what is above a ceiling is kept for the
// classes with a higher one. A draw is one atomic operation and allocates nothing.
package budget

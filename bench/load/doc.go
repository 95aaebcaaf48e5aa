// Package load makes the load of a benchmark.
//
//	Source ──▶ Lane ──▶ Target.Append, or Stream
//	  ▲          │        │
//	  └ Settle ◀─┴────────┘
//
// A Source makes requests and checks each answer. A Lane keeps one call in flight, or a stream full
// of them. A Loop paces the lanes, closed or open, and tallies their calls. Fill makes a data
// directory with many receipts.
package load

// Package benchtest has an in-memory store that answers as a node does, for tests of package bench
// and the packages below it. It imports none of them.
package benchtest

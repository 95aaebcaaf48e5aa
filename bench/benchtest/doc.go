// Package benchtest has a store in memory that answers as a node does, for tests of package bench
// and the packages below it. It imports none of them.
package benchtest

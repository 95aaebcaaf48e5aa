// Package testbed holds what the tests of all packages share, one job a package below it. Nothing
// here knows the product.
//
//	bubble   runs a test in fake time, and waits there
//	network  carries the connections of a test in fake time
//	await    waits in a test that runs in real time, for what the product signals
//	seed     draws from a seed that is printed and repeats
//
// A test runs in fake time unless real time, a disk, a network of the system or a process is what
// it is about. In fake time nothing depends on how busy a machine is: time passes once every
// goroutine waits. TestClock of the module's root holds all tests to this.
package testbed

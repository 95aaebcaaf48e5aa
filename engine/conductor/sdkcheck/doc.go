// Package sdkcheck lets the published Go SDK of Conductor drive the fake of package conductortest.
// An error of the fake that an adapter shares would show here: the SDK was written against real
// servers. It is a module of its own, so that nothing of the SDK reaches the main module.
package sdkcheck

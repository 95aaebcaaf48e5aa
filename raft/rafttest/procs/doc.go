// Package procs attacks real runlog processes from outside.
package procs

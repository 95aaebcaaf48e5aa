// Package workerflags builds what the workers of all engines execute steps with, of the flags and
// variables of a process: executors, and the secrets of steps (ENG-7).
//
//	var f workerflags.Flags
//	f.Register(flag.CommandLine)
//	flag.Parse()
//	w, err := f.Build(workerflags.Options{Getenv: os.Getenv})
//
// So every engine has the same executors by the same flags, and a plan names its secrets alike
// wherever it is executed. An error is an *Error if a flag or a variable is at fault.
package workerflags

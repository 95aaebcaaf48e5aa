// Package program is the frame of the worker programs of engines, such as runlog-conductor and
// runlog-temporal: their command lines, their connections, and what they show of themselves.
//
//	program.Main("runlog-x", run)            // signals, and the exit code
//	i, err := program.Choose(...)            // the verb of the command line
//	node.Register(set); queues.Register(set) // flags that all workers have
//	log, err := node.Dial(client.Options{})  // TLS and token, read again when they change
//	err = servers.Wait(ctx)                  // both answer, with credentials that suffice
//	end, err := health.Serve(...)            // metrics, and whether it works
//
// So a worker has the same flags, the same remedies and the same pages whatever its engine. An
// error of a flag names the flag. Executors and secrets are the flags of workerflags.
package program

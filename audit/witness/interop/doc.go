// Package interop lets the witness of runlog, its client, its policies and the log of a node meet
// public programs that speak C2SP (TR-4): the witness, the client and the formats of
// transparency-dev, the verifiers of torchwood, and the tile readers of tessera and torchwood. It
// has tests alone, and is a module of its own, as these programs have many dependencies.
package interop

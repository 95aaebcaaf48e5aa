package main

import "runlog/client/command/session"

// version is set by the linker: -ldflags "-X main.version=…".
var version = "dev"

func main() { session.Main(version, run) }

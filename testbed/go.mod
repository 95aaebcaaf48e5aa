module runlog/testbed

go 1.26.0

require (
	golang.org/x/net v0.60.0
	pgregory.net/rapid v1.3.0
)

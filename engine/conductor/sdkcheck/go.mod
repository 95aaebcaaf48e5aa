module runlog/engine/conductor/sdkcheck

go 1.26.0

require (
	github.com/antihax/optional v1.0.0
	github.com/conductor-sdk/conductor-go v1.5.4
)

require (
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/patrickmn/go-cache v2.1.0+incompatible // indirect
	github.com/prometheus/client_golang v1.25.0 // indirect
	github.com/prometheus/client_model v0.6.3 // indirect
	github.com/prometheus/common v0.72.0 // indirect
	github.com/prometheus/procfs v0.22.0 // indirect
	github.com/sirupsen/logrus v1.8.1 // indirect
	golang.org/x/sys v0.49.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
	runlog/engine v0.0.0
	runlog/testbed v0.0.0
)

replace (
	runlog => ../../..
	runlog/client => ../../../client
	runlog/client/clienttest => ../../../client/clienttest
	runlog/engine => ../../../engine
	runlog/proto => ../../../proto
	runlog/testbed => ../../../testbed
)

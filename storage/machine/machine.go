// Package machine lists the machines of this build. A new one is a folder below this one and a line
// in All.
package machine

import (
	"runlog/storage"
	"runlog/storage/machine/access"
	"runlog/storage/machine/join"
	"runlog/storage/machine/metadata"
	"runlog/storage/machine/queue"
	"runlog/storage/machine/signing"
	"runlog/storage/machine/subscription"
	"runlog/storage/machine/tenant"
)

// FeatureLevel is the highest feature level that this build supports: it knows every operation that
// any level up to this one allows. A build that adds operations adds one level for all of them.
const FeatureLevel = storage.CoreLevel

// All returns the machines of this build.
func All() []storage.Machine {
	return []storage.Machine{
		signing.Machine{}, metadata.Machine{}, access.Machine{}, tenant.Machine{}, join.Machine{}, queue.Machine{}, subscription.Machine{},
	}
}

// EnsureDefaults gives a store the machines of this build, unless it has been given others.
func EnsureDefaults(o *storage.Options) {
	if o.Machines == nil {
		o.Machines, o.FeatureLevel = All(), FeatureLevel
	}
}

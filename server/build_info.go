package server

import (
	"runtime"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// newBuildInfo returns the metric that names the build of the node. Its value is always 1.
func newBuildInfo(o *Options) prometheus.Collector {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "runlog", Name: "build_info",
		Help: "1, with the version of the build, of Go, and the highest feature level that the build supports.",
		ConstLabels: prometheus.Labels{
			"version": o.Version, "goversion": runtime.Version(), "feature_level": strconv.FormatUint(uint64(o.Store.FeatureLevel), 10),
		},
	})
	info.Set(1)
	return info
}

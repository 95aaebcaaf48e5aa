package servertest

import (
	"strings"

	"google.golang.org/protobuf/proto"

	runlogv1 "runlog/proto/runlog/v1"
)

// NewRun builds a valid run with all its metadata; change makes it another one.
func NewRun(id string, change ...func(*runlogv1.Run)) *runlogv1.Run {
	r := &runlogv1.Run{
		RunId: id, TenantId: "tenant", ProjectId: "project", EnvironmentId: "prod",
		PlanRef: &runlogv1.PlanRef{Uri: "s3://plans/1.json", Sha256: strings.Repeat("ab", 32), SchemaVersion: "v1",
			PlanId: "plan", PlanVersion: "1", SizeBytes: proto.Int64(1 << 40), Compression: proto.String("gzip")},
		EngineType: proto.String("temporal"), TriggeredBy: proto.String("user"), TriggerSource: proto.String("manual"),
		Labels: map[string]string{"team": "data", "empty": ""},
	}
	for _, c := range change {
		c(r)
	}
	return r
}

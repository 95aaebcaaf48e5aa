package server_test

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"testing"

	"go.yaml.in/yaml/v3"

	"runlog/audit/policy"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// alertRules are the rules of docs/alerts.yml, in the form of Prometheus.
type alertRules struct {
	Groups []struct {
		Rules []struct {
			Alert, Expr, For    string
			Labels, Annotations map[string]string
		}
	}
}

// TestAlertRules: every metric of the first group in docs/alerts.yml exists at a leader, and every
// rule says what it means and what to do. The other group is about runners.
func TestAlertRules(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		text, err := os.ReadFile(filepath.Join("..", "docs", "alerts.yml"))
		if err != nil {
			t.Fatal(err)
		}
		var rules alertRules
		if err := yaml.Unmarshal(text, &rules); err != nil || len(rules.Groups) != 2 || len(rules.Groups[0].Rules) < 5 {
			t.Fatalf("%v: %+v", err, rules)
		}
		w := newWitnessed(t, "w.example", 11)
		n := servertest.Start(t, func(o *server.Options) {
			o.Witnesses = []policy.Endpoint{{Name: "w", Key: w.cosigner.Key(), URL: w.url}}
		})
		n.Subscribe("s") // Metrics of subscriptions need one, as those of witnesses do.
		bubble.Until(t, "the leader exports how many voters may fail", func() bool { return n.Metric("runlog_raft_failure_tolerance") == 0 })
		name := regexp.MustCompile(`\brunlog_\w+`)
		for _, r := range rules.Groups[0].Rules {
			if r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["remedy"] == "" {
				t.Errorf("%s: %+v", r.Alert, r)
			}
			for _, metric := range name.FindAllString(r.Expr, -1) {
				if n.Metric(metric) < 0 {
					t.Errorf("%s: no node exports %s", r.Alert, metric)
				}
			}
		}
	})
}

// TestBuildInfo: the version of the node is a metric.
func TestBuildInfo(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, func(o *server.Options) { o.Version = "1.2.3" })
		want := regexp.MustCompile(`\nrunlog_build_info\{feature_level="[1-9]\d*",goversion="` + regexp.QuoteMeta(runtime.Version()) + `",version="1\.2\.3"\} 1\n`)
		if text := n.MetricsText(); !want.MatchString(text) {
			t.Errorf("no build info in:\n%s", text)
		}
	})
}

// TestFailureToleranceOfTheLeader: only the leader exports how many voters may fail, so an alert on
// 0 does not fire for followers. It is 0 once a voter is lost.
func TestFailureToleranceOfTheLeader(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		const metric = "runlog_raft_failure_tolerance"
		all := servertest.StartNodes(t, 3)
		first := all.Leader()
		bubble.Until(t, "one voter may fail", func() bool { return first.Metric(metric) == 1 })
		for _, n := range all.Followers() {
			if got := n.Metric(metric); got >= 0 {
				t.Errorf("a follower exports %v", got)
			}
		}
		if _, err := first.Clusters().TransferLeadership(first.Context(), &runlogv1.TransferLeadershipRequest{}); err != nil {
			t.Fatal(err)
		}
		var next *servertest.Node
		bubble.Until(t, "the next leader alone exports it", func() bool {
			var exporting servertest.Nodes
			for _, n := range all {
				if n.Metric(metric) >= 0 {
					exporting = append(exporting, n)
				}
			}
			if len(exporting) != 1 || exporting[0] == first {
				return false
			}
			next = exporting[0]
			return true
		})
		all.Other(next).Close()
		bubble.Until(t, "no voter may fail", func() bool { return next.Metric(metric) == 0 })
	})
}

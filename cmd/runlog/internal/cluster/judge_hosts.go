package cluster

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"runlog/client/command/output"

	runlogv1 "runlog/proto/runlog/v1"
)

// alertDiskLow is the alert of a node that refuses appends because its disk is nearly full.
const alertDiskLow = "DISK_LOW"

// alertAdvice has the remedy of each alert.
var alertAdvice = map[string]string{
	alertDiskLow:         "free space on its disk: it refuses appends while it leads",
	"CLOCK_SKEW_HIGH":    "synchronise its clock (chrony, ntpd): its stamps come closer to it by a tenth of the time",
	"CLOCK_FAR_AHEAD":    "synchronise its clock (chrony, ntpd): until then it does not lead",
	"AUDIT_KEY_MISSING":  "nothing is signed: bring back a node that has audit.key, or make a new key: runlog audit rotate-key --old-key-is-lost",
	"WITNESS_CONFLICT":   "a witness says that it has signed another history: keep the newest checkpoints (runlog audit checkpoints), and ask its operator for the one that it has",
	"WITNESS_BEHIND":     "a witness has not signed for ten minutes: look whether it runs, can be reached from the leader, and follows the key of this cluster (runlog audit keys)",
	"TREE_ROOT_DIFFERS":  "it or a voter that its log names has a damaged projection, or other records: start voters that are down, and rebuild the projection of each node that agrees with none (runlog projector rebuild)",
	"PROJECTOR_LAG_HIGH": "its snapshots and watches are late: check whether its processors or its disk are busy with other work",
}

func findAlerts(v *view) (found []finding) {
	for _, m := range v.GetMembers() {
		for _, alert := range m.GetAlerts() {
			f := finding{severity: severityWarning, nodes: []string{nameOf(m)}, what: fmt.Sprintf("%s raises %s", nameOf(m), alert), do: alertAdvice[alert]}
			if alert == alertDiskLow && m.GetNodeId() == v.GetLeaderId() {
				f.severity, f.what = severityError, f.what+" and leads: no appends are taken"
				f.do = "free space on its disk; until then another node can lead: runlog cluster transfer"
			}
			if f.do == "" {
				f.do = "read its log"
			}
			found = append(found, f)
		}
	}
	return found
}

func findDisks(v *view) (found []finding) {
	for _, m := range v.GetMembers() {
		free, data := m.GetDiskFreeBytes(), m.GetDataBytes()
		f := finding{severity: severityWarning, nodes: []string{nameOf(m)},
			what: fmt.Sprintf("%s has %s of free disk beside %s of data", nameOf(m), output.Size(free), output.Size(data)),
			do:   "free space, or enlarge the disk: below --min-free-disk it refuses appends while it leads"}
		if slices.Contains(m.GetAlerts(), alertDiskLow) {
			f.what += ", less than its --min-free-disk"
			found = append(found, f)
			continue
		}
		// The size of the disk is at least free + data.
		if free+data == 0 || free >= littleDisk && free/littleShare >= (free+data)/100 {
			continue
		}
		found = append(found, f)
	}
	return found
}

func findClocks(v *view) []finding {
	var first, last *runlogv1.Member
	for _, m := range v.GetMembers() {
		if !answers(m) || m.ClockOffset == nil {
			continue
		}
		if first == nil || m.GetClockOffset().AsDuration() < first.GetClockOffset().AsDuration() {
			first = m
		}
		if last == nil || m.GetClockOffset().AsDuration() > last.GetClockOffset().AsDuration() {
			last = m
		}
	}
	apart := last.GetClockOffset().AsDuration() - first.GetClockOffset().AsDuration()
	if apart <= clocksApart {
		return nil
	}
	return []finding{{severity: severityWarning, nodes: []string{nameOf(first), nameOf(last)},
		what: fmt.Sprintf("the clock of %s is %s behind that of %s", nameOf(first), output.Brief(apart), nameOf(last)),
		do:   "synchronise them (chrony, ntpd): stamps follow the clock of the leader"}}
}

func findVersions(v *view) []finding {
	by := make(map[string][]string)
	for _, m := range v.GetMembers() {
		if answers(m) && m.GetVersion() != "" {
			by[m.GetVersion()] = append(by[m.GetVersion()], nameOf(m))
		}
	}
	if len(by) < 2 {
		return nil
	}
	var parts []string
	for _, version := range slices.Sorted(maps.Keys(by)) {
		parts = append(parts, strings.Join(by[version], " ")+": "+version)
	}
	return []finding{{severity: severityWarning, what: "the members run different versions (" + strings.Join(parts, "; ") + ")", do: "finish the upgrade, one node at a time"}}
}

func findHosts(v *view) (found []finding) {
	if len(v.GetMembers()) < 2 {
		return nil
	}
	on := make(map[string][]string)
	for _, m := range v.GetMembers() {
		on[hostOf(m.GetRaftAddress())] = append(on[hostOf(m.GetRaftAddress())], nameOf(m))
	}
	for _, host := range slices.Sorted(maps.Keys(on)) {
		if nodes := on[host]; len(nodes) > 1 {
			found = append(found, finding{severity: severityWarning, nodes: nodes, what: fmt.Sprintf("%s share the host %s, and fail with it", strings.Join(nodes, " and "), host),
				do: "fine for a trial; otherwise move them to separate hosts, one at a time: add a node elsewhere, then remove one"})
		}
		if len(on) > 1 && loopback(host) {
			found = append(found, finding{severity: severityError, nodes: on[host], what: fmt.Sprintf("%s advertises the raft address %s, which only its own host reaches", strings.Join(on[host], " and "), host),
				do: "start it with --raft-listen or --raft-advertise at an address that the others reach"})
		}
	}
	for _, m := range v.GetMembers() {
		if host := hostOf(m.GetGrpcAddress()); len(on) > 1 && answers(m) && loopback(host) {
			found = append(found, finding{severity: severityWarning, nodes: []string{nameOf(m)}, what: fmt.Sprintf("%s sends clients to %s, which only its own host reaches", nameOf(m), m.GetGrpcAddress()),
				do: "start it with --grpc-listen or --grpc-advertise at an address that clients reach"})
		}
	}
	return found
}

func loopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}

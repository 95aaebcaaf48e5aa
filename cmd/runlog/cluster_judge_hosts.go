package main

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	runlogv1 "runlog/proto/runlog/v1"
)

// alertAdvice is what to do about an alert.
var alertAdvice = map[string]string{
	"DISK_LOW":           "make room on its disk: it refuses appends while it leads",
	"CLOCK_SKEW_HIGH":    "see to its clock's synchronisation (chrony, ntpd): what it stores is stamped ahead of its clock",
	"AUDIT_KEY_MISSING":  "nothing is signed: bring back a node that has audit.key, or make a new one: runlog audit rotate-key --old-key-is-lost",
	"PROJECTOR_LAG_HIGH": "snapshots and watches there are late: see whether its processors or its disk are busy with something else",
}

func findAlerts(v *view) (found []finding) {
	for _, m := range v.GetMembers() {
		for _, alert := range m.GetAlerts() {
			f := finding{severity: severityWarning, nodes: []string{nameOf(m)}, what: fmt.Sprintf("%s raises %s", nameOf(m), alert), do: alertAdvice[alert]}
			if alert == "DISK_LOW" && m.GetNodeId() == v.GetLeaderId() {
				f.severity, f.what = severityError, f.what+" and leads: no appends are taken"
				f.do = "make room on its disk; meanwhile another node may lead: runlog cluster transfer"
			}
			if f.do == "" {
				f.do = "its log says more"
			}
			found = append(found, f)
		}
	}
	return found
}

func findDisks(v *view) (found []finding) {
	for _, m := range v.GetMembers() {
		free, data := m.GetDiskFreeBytes(), m.GetDataBytes()
		// A disk is not smaller than what is free and what the data takes.
		if free+data == 0 || free >= littleDisk && free/littleShare >= (free+data)/100 {
			continue
		}
		found = append(found, finding{severity: severityWarning, nodes: []string{nameOf(m)},
			what: fmt.Sprintf("%s has %s of disk left beside %s of data", nameOf(m), sizeText(free), sizeText(data)),
			do:   "make room or enlarge it: below --min-free-disk appends are refused while it leads"})
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
		what: fmt.Sprintf("the clock of %s is %s behind that of %s", nameOf(first), brief(apart), nameOf(last)),
		do:   "see to their synchronisation (chrony, ntpd): events are stamped by the clock of whoever leads"}}
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
				do: "fine for a trial; else move them to hosts of their own, one at a time: add a node elsewhere, then remove one"})
		}
		if len(on) > 1 && loopback(host) {
			found = append(found, finding{severity: severityError, nodes: on[host], what: fmt.Sprintf("%s gives the others the raft address %s, which only its own host reaches", strings.Join(on[host], " and "), host),
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

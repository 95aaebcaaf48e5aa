package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	runlogv1 "runlog/proto/runlog/v1"
)

// severity of a finding. A larger one is worse.
type severity int

const (
	severityOK severity = iota
	severityWarning
	severityError
)

// String returns the name that people and scripts see.
func (s severity) String() string { return [...]string{"OK", "WARNING", "ERROR"}[s] }

// finding is what one check found.
type finding struct {
	severity severity
	check    string
	what, do string
	nodes    []string
}

const (
	// slowVoter is after which time a node that runs should have become a voter.
	slowVoter = 10 * time.Minute
	// farBehind is how many entries behind a node calls itself out of date.
	farBehind = 1000
	// longSilence is far more than an election takes.
	longSilence = 5 * time.Second
	// clocksApart is how far clocks are apart that nothing keeps together.
	clocksApart = 500 * time.Millisecond
	// littleDisk is little for a node's log and a copy of its data.
	littleDisk = 2 << 30
	// littleShare of a disk, in percent.
	littleShare = 10
)

// view is a cluster as it is judged: what one node says of all, and when.
type view struct {
	*runlogv1.GetStatusResponse
	now time.Time
}

// checks are made in this order; what they find is shown the worst first.
var checks = []struct {
	name string
	// well is said when nothing is found.
	well string
	find func(*view) []finding
}{
	{"leader", "one node leads", findNoLeader},
	{"members", "every member answers", findSilent},
	{"following", "every member follows the leader and keeps up", findBehind},
	{"tolerance", "a voter may fail", findTolerance},
	{"voters", "the number of voters is odd", findEven},
	{"joining", "nobody waits to become a voter", findJoining},
	{"alerts", "no alert stands", findAlerts},
	{"disks", "every disk has room", findDisks},
	{"clocks", "the clocks are together", findClocks},
	{"versions", "all run the same version", findVersions},
	{"hosts", "every member is reached at an address and a host of its own", findHosts},
}

// judge makes all checks.
func judge(v *view) []finding {
	var all []finding
	for _, c := range checks {
		found := c.find(v)
		if len(found) == 0 {
			found = []finding{{what: c.well}}
		}
		for _, f := range found {
			f.check = c.name
			all = append(all, f)
		}
	}
	worstFirst(all)
	return all
}

func worstFirst(all []finding) {
	slices.SortStableFunc(all, func(a, b finding) int { return cmp.Compare(b.severity, a.severity) })
}

func findNoLeader(v *view) []finding {
	if v.GetLeaderId() != "" {
		return nil
	}
	voters, up := votersOf(v.GetMembers())
	need := voters/2 + 1
	f := finding{severity: severityError, what: fmt.Sprintf("nobody leads: %d of %s answer and %d are needed; no appends are taken", up, plural(voters, "voter"), need)}
	f.do = "bring back those that do not answer: appends then go on by themselves; if a majority is lost for good: runlog cluster recover"
	if up >= need {
		f.what = fmt.Sprintf("nobody leads, though %d of %s answer; no appends are taken", up, plural(voters, "voter"))
		f.do = "ask again in a few seconds: an election takes about two; if it lasts, see whether the nodes reach each other at their raft addresses, and their logs"
	}
	return []finding{f}
}

func findSilent(v *view) (found []finding) {
	for _, m := range v.GetMembers() {
		f := finding{severity: severityError, nodes: []string{nameOf(m)}}
		switch {
		case !answers(m):
			f.what = fmt.Sprintf("%s does not answer at %s: %s", nameOf(m), m.GetRaftAddress(), whyUnreachable(m))
			f.do = fmt.Sprintf("start it, or mend the network; if it is lost for good: runlog cluster remove %s, and add a new node", nameOf(m))
			if !isVoter(m) {
				f.severity = severityWarning
			}
		case m.GetState() == runlogv1.MemberState_STOPPING:
			f.severity, f.what, f.do = severityWarning, nameOf(m)+" is going down", "nothing, if it was stopped on purpose; start it again soon"
		default:
			continue
		}
		found = append(found, f)
	}
	return found
}

func findBehind(v *view) (found []finding) {
	for _, m := range v.GetMembers() {
		f := finding{severity: severityWarning, nodes: []string{nameOf(m)}}
		entries, known := behind(v.GetStatusResponse, m)
		switch {
		case m.GetState() == runlogv1.MemberState_CANDIDATE && v.GetLeaderId() != "":
			f.what = fmt.Sprintf("%s follows nobody, though %s leads", nameOf(m), v.GetLeaderId())
			f.do = fmt.Sprintf("see whether it reaches %s at its raft address, in both directions, and what its log says", v.GetLeaderId())
		case known && entries > farBehind:
			f.what = fmt.Sprintf("%s is %s entries behind the leader", nameOf(m), number(entries))
			f.do = "look again: if this number does not fall, its disk or its network is too slow for the load"
		case m.GetState() == runlogv1.MemberState_FOLLOWER && m.GetLastContact().AsDuration() > longSilence:
			f.what = fmt.Sprintf("%s has not heard from its leader for %s", nameOf(m), brief(m.GetLastContact().AsDuration()))
			f.do = "see whether the leader reaches it at " + m.GetRaftAddress()
		default:
			continue
		}
		found = append(found, f)
	}
	return found
}

func findTolerance(v *view) []finding {
	voters, up := votersOf(v.GetMembers())
	f := finding{severity: severityError, do: "bring back the others, or add a node"}
	switch need := voters/2 + 1; {
	case voters == 1:
		f.severity, f.what = severityWarning, "there is one voter: when its host fails nothing is served, and when its disk fails all is lost"
		f.do = "add two more nodes"
	case up < need:
		f.what = fmt.Sprintf("%d of %s answer, and %d are needed for appends to be taken", up, plural(voters, "voter"), need)
	case voters == 2: // and both answer
		f.what, f.do = "there are two voters: when one fails, no appends are taken", "add a node"
	case up == need:
		f.what = fmt.Sprintf("%d of %s answer: when one more fails, no appends are taken", up, plural(voters, "voter"))
	default:
		return nil
	}
	return []finding{f}
}

func findEven(v *view) []finding {
	voters, _ := votersOf(v.GetMembers())
	if voters%2 == 1 {
		return nil
	}
	return []finding{{severity: severityWarning, what: fmt.Sprintf("%d voters tolerate no more failures than %d would", voters, voters-1),
		do: "add a node, or remove one"}}
}

func findJoining(v *view) (found []finding) {
	for _, m := range v.GetMembers() {
		if isVoter(m) || m.StartedAt == nil || v.now.Sub(m.GetStartedAt().AsTime()) < slowVoter {
			continue
		}
		found = append(found, finding{severity: severityWarning, nodes: []string{nameOf(m)},
			what: fmt.Sprintf("%s is no voter yet, and started %s ago", nameOf(m), brief(v.now.Sub(m.GetStartedAt().AsTime()).Truncate(time.Minute))),
			do:   "see in runlog cluster status whether it is being seeded or catches up, and what its log says",
		})
	}
	return found
}

// nameOf is a member's name, or its address while that is all that is known.
func nameOf(m *runlogv1.Member) string { return cmp.Or(m.GetNodeId(), m.GetRaftAddress()) }

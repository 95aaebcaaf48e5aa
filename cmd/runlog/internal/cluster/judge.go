package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"runlog/client/command/output"

	runlogv1 "runlog/proto/runlog/v1"
)

// severity of a finding; a larger one is worse.
type severity int

const (
	severityOK severity = iota
	severityWarning
	severityError
)

// String returns the name that is printed.
func (s severity) String() string { return [...]string{"OK", "WARNING", "ERROR"}[s] }

// finding is the result of one check.
type finding struct {
	severity severity
	check    string
	what, do string
	nodes    []string
}

const (
	// slowVoter is the time after which a running node should be a voter.
	slowVoter = 10 * time.Minute
	// farBehind is from how many entries on a node is called out of date.
	farBehind = 1000
	// longSilence is far longer than an election.
	longSilence = 5 * time.Second
	// clocksApart is a difference that clocks only have if they are not synchronised.
	clocksApart = 500 * time.Millisecond
	// littleDisk is less than a node needs for its log and a copy of its data.
	littleDisk = 2 << 30
	// littleShare of a disk, in percent.
	littleShare = 10
)

// view is the status of a cluster by one node, and the time of the check.
type view struct {
	*runlogv1.GetStatusResponse
	now time.Time
}

// checks run in this order. Their findings are shown with the worst first.
var checks = []struct {
	name string
	// well is shown if the check finds no fault.
	well string
	// asks means that the check needs the answers of the members.
	asks bool
	find func(*view) []finding
}{
	{"leader", "one node leads, and a majority has just confirmed it", false, findNoLeader},
	{"members", "every member answers", false, findSilent},
	{"following", "every member follows the leader and keeps up", true, findBehind},
	{"tolerance", "a voter may fail", false, findTolerance},
	{"voters", "the number of voters is odd", false, findEven},
	{"joining", "no node waits to become a voter", true, findJoining},
	{"hold", "runs are leased and events are delivered", false, findHold},
	{"alerts", "no alert is raised", true, findAlerts},
	{"disks", "every disk has room", true, findDisks},
	{"clocks", "the clocks are synchronised", true, findClocks},
	{"versions", "all members run the same version", true, findVersions},
	{"hosts", "every member has an address and a host of its own", false, findHosts},
}

// judge runs all checks. It calls nothing good that the answers do not show: an OK names the
// members that did not answer.
func judge(v *view) []finding {
	var silent []string
	for _, m := range v.GetMembers() {
		if !answers(m) {
			silent = append(silent, nameOf(m))
		}
	}
	var all []finding
	for _, c := range checks {
		found := c.find(v)
		if len(found) == 0 {
			f := finding{what: c.well}
			if c.asks && len(silent) > 0 {
				f.what += " (not known of " + strings.Join(silent, " ") + ")"
			}
			found = []finding{f}
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

func findHold(v *view) []finding {
	if v.GetHeldReason() == "" {
		return nil
	}
	since := ""
	if v.HeldSince != nil {
		since = " since " + v.HeldSince.AsTime().Format(time.RFC3339)
	}
	return []finding{{severity: severityWarning, what: "the cluster was restored and is HELD" + since + ": it leases no run and delivers no event",
		do: "once engines and receivers may hear from it: runlog cluster release"}}
}

func findNoLeader(v *view) []finding {
	if v.GetLeaderId() != "" && v.GetLeaderConfirmed() {
		return nil
	}
	voters, up := votersOf(v.GetMembers())
	need, leader := voters/2+1, leaderOf(v.GetStatusResponse)
	f := finding{severity: severityError,
		do: "ask again in a few seconds: an election takes about two; if this stays, check whether the nodes reach each other at their raft addresses, and read their logs"}
	switch {
	case v.LeaderConfirmed == nil && v.GetLeaderId() != "":
		f.severity, f.what = severityWarning, fmt.Sprintf("%s leads, as far as %s knows; its build cannot confirm it", v.GetLeaderId(), v.GetNodeId())
		f.do = "finish the upgrade"
	case up < need:
		f.what = fmt.Sprintf("no leader: %d of %s answer and %d are needed; no appends are taken", up, output.Plural(voters, "voter"), need)
		f.do = "start the nodes that do not answer; appends go on once enough are up; if the nodes are lost for good, see runlog cluster recover --help"
	case v.GetLeaderId() == "":
		f.what = fmt.Sprintf("no leader, though %d of %s answer; no appends are taken", up, output.Plural(voters, "voter"))
	case leader == nil || !answers(leader):
		f.what = fmt.Sprintf("no leader: %s led last and does not answer; no appends are taken until another is elected", v.GetLeaderId())
	default:
		f.what = fmt.Sprintf("no leader: %s takes %s for it, but no majority has confirmed it", v.GetNodeId(), v.GetLeaderId())
	}
	return []finding{f}
}

// confirmed reports whether a majority has confirmed the leader. What an earlier build leaves out
// counts as confirmed: findNoLeader warns of it.
func confirmed(v *view) bool {
	return v.GetLeaderId() != "" && (v.LeaderConfirmed == nil || v.GetLeaderConfirmed())
}

func findSilent(v *view) (found []finding) {
	voters, up := votersOf(v.GetMembers())
	for _, m := range v.GetMembers() {
		f := finding{severity: severityError, nodes: []string{nameOf(m)}}
		switch {
		case !answers(m):
			f.what = fmt.Sprintf("%s does not answer at %s: %s", nameOf(m), m.GetRaftAddress(), whyUnreachable(m))
			f.do = fmt.Sprintf("start it, or repair the network; if it is lost for good: runlog cluster remove %s, and add a new node", nameOf(m))
			if up < voters/2+1 { // No member can be removed.
				f.do = "start it, or repair the network"
			}
			if !isVoter(m) {
				f.severity = severityWarning
			}
		case m.GetState() == runlogv1.MemberState_STOPPING:
			f.severity, f.what, f.do = severityWarning, nameOf(m)+" is shutting down", "nothing, if it was stopped on purpose; start it again soon"
		default:
			continue
		}
		found = append(found, f)
	}
	return found
}

func findBehind(v *view) (found []finding) {
	if !confirmed(v) {
		return []finding{{severity: severityWarning, what: "without a leader it is not known which members keep up", do: "see the finding about the leader"}}
	}
	for _, m := range v.GetMembers() {
		f := finding{severity: severityWarning, nodes: []string{nameOf(m)}}
		entries, known := behind(v.GetStatusResponse, m)
		switch {
		case m.GetState() == runlogv1.MemberState_CANDIDATE && v.GetLeaderId() != "":
			f.what = fmt.Sprintf("%s follows no leader, though %s leads", nameOf(m), v.GetLeaderId())
			f.do = fmt.Sprintf("check whether it and %s reach each other at their raft addresses, and read its log", v.GetLeaderId())
		case known && entries > farBehind:
			f.what = fmt.Sprintf("%s is %s entries behind the leader", nameOf(m), output.Number(entries))
			f.do = "check again: if this number does not fall, its disk or its network is too slow for the load"
		case m.GetState() == runlogv1.MemberState_FOLLOWER && m.GetLastContact().AsDuration() > longSilence:
			f.what = fmt.Sprintf("%s has not heard from its leader for %s", nameOf(m), output.Brief(m.GetLastContact().AsDuration()))
			f.do = "check whether the leader reaches it at " + m.GetRaftAddress()
		default:
			continue
		}
		found = append(found, f)
	}
	return found
}

func findTolerance(v *view) []finding {
	voters, up := votersOf(v.GetMembers())
	f := finding{severity: severityError, do: "start the others, or add a node"}
	switch need := voters/2 + 1; {
	case voters == 1:
		f.severity, f.what = severityWarning, "there is one voter: if its host fails no call is served, and if its disk fails all data is lost"
		f.do = "add two more nodes"
	case up < need:
		f.what = fmt.Sprintf("%d of %s answer, and %d are needed for appends to be taken", up, output.Plural(voters, "voter"), need)
		f.do = "start the others"
	case voters == 2: // Both answer.
		f.what, f.do = "there are two voters: if one fails, no appends are taken", "add a node"
	case !confirmed(v):
		f.severity, f.what, f.do = severityWarning, "without a leader it is not known whether a voter may fail", "see the finding about the leader"
	case up == need:
		f.what = fmt.Sprintf("%d of %s answer: if one more fails, no appends are taken", up, output.Plural(voters, "voter"))
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
			what: fmt.Sprintf("%s is no voter yet, and started %s ago", nameOf(m), output.Brief(v.now.Sub(m.GetStartedAt().AsTime()).Truncate(time.Minute))),
			do:   "see in runlog cluster status whether it receives the state or catches up, and read its log",
		})
	}
	return found
}

// nameOf returns the name of a member, or its address if the name is unknown.
func nameOf(m *runlogv1.Member) string { return cmp.Or(m.GetNodeId(), m.GetRaftAddress()) }

// Package greeting has the messages with which nodes greet each other (NodeService.Meet): it turns
// them into the terms of raft/witness, and back.
package greeting

import (
	"time"

	nodev1 "runlog/proto/node/v1"
	"runlog/raft/witness"
)

// Encode returns a greeting as a message.
func Encode(g witness.Greeting) *nodev1.MeetRequest {
	req := &nodev1.MeetRequest{
		RaftAddress: g.Address, Term: g.Term, LastIndex: g.Index, LastTerm: g.LastTerm, OverruledTerm: g.Overruled,
		LeaderRaftId: g.Leader.ID, LeaderTerm: g.Leader.Term,
	}
	for _, i := range g.Incarnations {
		req.Incarnations = append(req.Incarnations, encodeIncarnation(i))
	}
	for id, r := range g.Members {
		req.Members = append(req.Members, encodeRecollection(id, r))
	}
	return req
}

// Decode returns the greeting of a message. What a message leaves out is zero.
func Decode(req *nodev1.MeetRequest) witness.Greeting {
	g := witness.Greeting{Address: req.GetRaftAddress(), Standing: witness.Standing{
		Term: req.GetTerm(), Index: req.GetLastIndex(), LastTerm: req.GetLastTerm(), Overruled: req.GetOverruledTerm(),
	}, Leader: witness.Leader{ID: req.GetLeaderRaftId(), Term: req.GetLeaderTerm()}, Members: map[string]witness.Recollection{}}
	for _, i := range req.GetIncarnations() {
		g.Incarnations = append(g.Incarnations, decodeIncarnation(i))
	}
	for _, r := range req.GetMembers() {
		g.Members[r.GetRaftId()] = decodeRecollection(r)
	}
	return g
}

func encodeIncarnation(i witness.Incarnation) *nodev1.Incarnation {
	if i.Number == 0 {
		return nil
	}
	return &nodev1.Incarnation{Number: i.Number, Id: i.ID}
}

func decodeIncarnation(i *nodev1.Incarnation) witness.Incarnation {
	return witness.Incarnation{Number: i.GetNumber(), ID: i.GetId()}
}

func encodeRecollection(id string, r witness.Recollection) *nodev1.Recollection {
	return &nodev1.Recollection{RaftId: id, Incarnation: encodeIncarnation(r.Incarnation), Term: r.Term, Index: r.Index, IndexTerm: r.LogTerm}
}

func decodeRecollection(r *nodev1.Recollection) witness.Recollection {
	return witness.Recollection{Incarnation: decodeIncarnation(r.GetIncarnation()), Term: r.GetTerm(), Index: r.GetIndex(), LogTerm: r.GetIndexTerm()}
}

// EncodeAnswer returns an answer to a greeting as a message.
func EncodeAnswer(a witness.Answer) *nodev1.MeetResponse {
	return &nodev1.MeetResponse{
		Caller: encodeRecollection("", a.You), SeenNanos: int64(a.Seen), SeenAddress: a.Address,
		Rival: encodeIncarnation(a.Rival), RivalTimes: uint32(a.RivalTimes), RivalSeenNanos: int64(a.RivalSeen), RivalAddress: a.RivalAddress,
		Self: Encode(a.Self),
	}
}

// DecodeAnswer returns the answer of a message.
func DecodeAnswer(resp *nodev1.MeetResponse) witness.Answer {
	return witness.Answer{
		You: decodeRecollection(resp.GetCaller()), Seen: time.Duration(resp.GetSeenNanos()), Address: resp.GetSeenAddress(),
		Rival: decodeIncarnation(resp.GetRival()), RivalTimes: int(resp.GetRivalTimes()),
		RivalSeen: time.Duration(resp.GetRivalSeenNanos()), RivalAddress: resp.GetRivalAddress(),
		Self: Decode(resp.GetSelf()),
	}
}

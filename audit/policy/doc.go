// Package policy reads trust policies in the form of C2SP tlog-policy, and tells whether a
// checkpoint fulfils one: whether a log of the policy signed it, which witnesses cosigned it and
// when, and whether they are a quorum (TR-4). It needs no network.
//
//	log runlog/0191…+5e1f…+AZ…            the cluster's key: each of its incarnations
//	witness one w.example/1+01ab…+BA…
//	witness two w.example/2+02cd…+BA…
//	group both all one two
//	quorum both
//
// Invariant: a group has only members of lines before it, and each name is a member at most once.
// So no group contains itself, and a witness counts once.
package policy

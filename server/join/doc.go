// Package join decides which nodes become members: the text of join tokens, and the Gate at which
// the leader asks for them. The tokens and admissions are in storage/machine/join.
//
//	new node ── Join(token) ──> any member ──> leader: Check, then Admit (a command) ──> admission
//	new node <── checkpoint ──  leader: Admitted
//	new node ── Join ─────────> leader: Check ──> non-voter; End (a command)
//
// Nodes that use TLS between each other do not come here: the certificate admits them.
package join

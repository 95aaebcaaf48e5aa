package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"sync"
	"time"

	"runlog/proto/contract"
)

const (
	// TicketScheme is the scheme of Authorization for a ticket.
	TicketScheme = "Watch-Ticket"
	// ticketFor is how long a ticket that is not used is good.
	ticketFor = time.Minute
	// maxTickets at a node, and of one identity. Each takes about 200 bytes.
	maxTickets, maxOwnTickets = 10_000, 100
	ticketPrefix              = "rlw_"
)

// tickets are those of one node that were not used. They open one watch each. Only hashes of them
// are kept, in memory alone.
type tickets struct {
	mu   sync.Mutex
	open map[TokenHash]ticket
	own  map[string]int // by the name of the identity
}

type ticket struct {
	identity *Identity
	until    time.Time
}

// NewTicket returns a ticket for one watch by an identity, and when it ends.
func (a *Authenticator) NewTicket(i *Identity) (text string, until time.Time, err error) {
	now := a.opts.Clock()
	var random [tokenBytes]byte
	_, _ = rand.Read(random[:]) // It never fails.
	text, until = ticketPrefix+base64.RawURLEncoding.EncodeToString(random[:]), now.Add(ticketFor)
	t := &a.tickets
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.open) >= maxTickets || t.own[i.Name] >= maxOwnTickets {
		t.dropLocked(now)
	}
	if len(t.open) >= maxTickets || t.own[i.Name] >= maxOwnTickets {
		return "", time.Time{}, &contract.Error{Reason: contract.ReasonOverloaded, RetryAfter: time.Second,
			Message: "the caller, or the node, has too many tickets that were not used: use them, or try again after the delay"}
	}
	if t.open == nil {
		t.open, t.own = map[TokenHash]ticket{}, map[string]int{}
	}
	t.open[sha256.Sum256([]byte(text))] = ticket{i, until}
	t.own[i.Name]++
	return text, until, nil
}

// dropLocked drops the tickets that have ended.
func (t *tickets) dropLocked(now time.Time) {
	for hash, one := range t.open {
		if !now.Before(one.until) {
			t.takeLocked(hash)
		}
	}
}

func (t *tickets) takeLocked(hash TokenHash) (one ticket, ok bool) {
	if one, ok = t.open[hash]; !ok {
		return one, false
	}
	delete(t.open, hash)
	if t.own[one.identity.Name]--; t.own[one.identity.Name] == 0 {
		delete(t.own, one.identity.Name)
	}
	return one, true
}

var errTicket = unauthenticated("the ticket is not accepted: it was used, has ended, or is of another node; get a new one from POST /v1/watch-tickets")

// watcher returns the identity of a ticket, which may open one watch. A ticket is good once.
func (a *Authenticator) watcher(text string) (*Identity, error) {
	t := &a.tickets
	t.mu.Lock()
	one, ok := t.takeLocked(sha256.Sum256([]byte(text)))
	t.mu.Unlock()
	if !ok || !a.opts.Clock().Before(one.until) {
		return nil, errTicket
	}
	if one.identity == Local {
		return Local, nil
	}
	i := *one.identity
	i.WatchOnly = true
	return &i, nil
}

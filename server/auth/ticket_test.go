package auth

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// TestTicketsSEC2: a ticket is good for the identity that has asked for it, once, for a minute, and
// for a watch alone. It does not outlive the credential that it was made with (SEC-5).
func TestTicketsSEC2(t *testing.T) {
	t.Parallel()
	text, hash := NewToken()
	now := time.Now()
	stored := &Token{ID: "1", Name: "ui", Tenants: TenantsOf("acme"), Roles: RolesOf(runlogv1.Role_READER)}
	a, err := New(t.Context(), Options{
		Clock: func() time.Time { return now },
		Token: func(_ context.Context, h TokenHash) (*Token, error) {
			if h != hash {
				return nil, nil
			}
			return stored, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	reader, err := a.withBearer(t, text)
	if err != nil {
		t.Fatal(err)
	}
	ticket := func() string {
		ticket, until, err := a.NewTicket(reader)
		if err != nil || len(ticket) != 47 || !until.Equal(now.Add(ticketFor)) {
			t.Fatalf("%q until %v, %v", ticket, until, err)
		}
		return ticket
	}
	with := func(scheme, text string) (*Identity, error) {
		return a.Authenticate(t.Context(), Credentials{Authorization: []string{scheme + " " + text}})
	}
	one := ticket()
	for _, wrong := range []string{one[:46], one + "A", strings.ToUpper(one), "", text} {
		i, err := with(TicketScheme, wrong)
		wantRefused(t, wrong, i, err)
	}
	i, err := with("Bearer", one)
	wantRefused(t, "a ticket as a token", i, err)
	i, err = with(TicketScheme, one)
	if err != nil || !i.WatchOnly || i.Name != reader.Name || i.Roles != reader.Roles || !i.Sees("acme") || reader.WatchOnly {
		t.Fatalf("%+v, %v", i, err)
	}
	again, err := with(TicketScheme, one)
	wantRefused(t, "a ticket that was used", again, err)
	late := ticket()
	now = now.Add(ticketFor)
	again, err = with(TicketScheme, late)
	wantRefused(t, "a ticket that has ended", again, err)
	stored.Revoked = true
	wantRefused(t, "a watch after the token was revoked", nil, a.Valid(t.Context(), i))
	if len(a.tickets.open) != 0 || len(a.tickets.own) != 0 {
		t.Errorf("%d tickets are kept of %v", len(a.tickets.open), a.tickets.own)
	}
}

// TestTicketsAreBounded: one identity takes no more than its share of the tickets, and those that
// have ended make room.
func TestTicketsAreBounded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	a, err := New(t.Context(), Options{Clock: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	greedy, other := &Identity{Name: "token:greedy"}, &Identity{Name: "token:other"}
	for range maxOwnTickets {
		if _, _, err := a.NewTicket(greedy); err != nil {
			t.Fatal(err)
		}
	}
	var full *contract.Error
	if _, _, err := a.NewTicket(greedy); !errors.As(err, &full) || full.Reason != contract.ReasonOverloaded || full.RetryAfter == 0 {
		t.Errorf("one more: %v", err)
	}
	if _, _, err := a.NewTicket(other); err != nil {
		t.Errorf("another identity: %v", err)
	}
	now = now.Add(ticketFor)
	if _, _, err := a.NewTicket(greedy); err != nil || len(a.tickets.open) != 1 {
		t.Errorf("%d tickets later: %v", len(a.tickets.open), err)
	}
}

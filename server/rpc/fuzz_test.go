package rpc

import (
	"bytes"
	"context"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"
	grpcpeer "google.golang.org/grpc/peer"

	"runlog/server/auth"
	"runlog/server/peer"
	"runlog/storage"
)

// FuzzToken opens any token, as it is and with a right checksum. A token has one spelling, belongs
// to one use and one incarnation, and comes back with what it was sealed with (READ-3).
func FuzzToken(f *testing.F) {
	in := storage.Incarnation{1}
	domain := NewTokenDomain("use", in, "part")
	others := []TokenDomain{
		NewTokenDomain("use", storage.Incarnation{2}, "part"), NewTokenDomain("other", in, "part"), NewTokenDomain("use", in, "par", "t"),
	}
	f.Add(domain.Seal(TokenPage, []byte("body")), byte(0))
	f.Add("body", byte(TokenWatch))
	f.Add(FormatPosition(in, 7), byte(0))
	f.Add(FormatPosition(in, 1<<63), byte(0))
	f.Fuzz(func(t *testing.T, text string, kind byte) {
		if p, err := ParsePosition("field", text, in); err == nil && FormatPosition(in, p) != text {
			t.Fatalf("position %d is %q and %q", p, text, FormatPosition(in, p))
		}
		if kind == 0 {
			if is, body, ok := domain.Open(text); ok && domain.Seal(is, body) != text {
				t.Fatalf("%q and %q are one token", text, domain.Seal(is, body))
			}
			return
		}
		token := domain.Seal(TokenKind(kind), []byte(text))
		is, body, ok := domain.Open(token)
		if !ok || byte(is) != kind || !bytes.Equal(body, []byte(text)) || KindOf(token) != is {
			t.Fatalf("kind %d with %q came back as %d with %q, %v", kind, text, is, body, ok)
		}
		if _, ok := domain.OpenAs(is+1, token); ok {
			t.Fatalf("kind %d is taken for another", kind)
		}
		for i := range others {
			if _, _, ok := others[i].Open(token); ok {
				t.Fatalf("%q belongs to two uses", token)
			}
		}
		for _, changed := range []string{token[1:], token[:len(token)-1], token + "A", token + "=", token + "\n", " " + token} {
			if _, _, ok := domain.Open(changed); ok {
				t.Fatalf("%q is taken for %q", changed, token)
			}
		}
	})
}

// FuzzForwarded lets a member forward a call with any passports. A call has the identity that the
// one passport proves. Only an open node takes a call without one, as that of the local caller
// (SEC-3).
func FuzzForwarded(f *testing.F) {
	secret := bytes.Repeat([]byte{7}, 32)
	passports := auth.Passports{Secret: func(number uint64) ([]byte, uint64, bool) { return secret, 1, number < 2 }}
	member := fromMember(f)
	ci := &auth.Identity{Name: "token:ci", Tenants: auth.TenantsOf("a"), Roles: auth.AllRoles, Until: time.Unix(9999999999, 0)}
	made, err := passports.Make(ci, "n1.7")
	if err != nil {
		f.Fatal(err)
	}
	local, err := passports.Make(auth.Local, "n1.7")
	if err != nil {
		f.Fatal(err)
	}
	elsewhere, err := passports.Make(ci, "n2.7")
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range [][]byte{made, local, elsewhere, nil, made[:40], append(bytes.Clone(made), 0)} {
		for count := range uint8(3) {
			f.Add(text, count, false, true)
			f.Add(text, count, true, true)
		}
		f.Add(text, uint8(1), true, false)
	}
	f.Fuzz(func(t *testing.T, text []byte, count uint8, open, fromMember bool) {
		a := &Access{Passports: passports, Open: open, Node: "n2.7"}
		md := metadata.MD{"authorization": {"Bearer x"}}
		for range count % 3 {
			md.Append(passportHeader, string(text))
		}
		ctx := t.Context()
		if fromMember {
			ctx = member
		}
		i, err := a.forwarded(metadata.NewIncomingContext(ctx, md))
		proved, wrong := passports.Verify(text, "n1.7")
		switch {
		case fromMember && count%3 == 1 && wrong == nil:
			if err != nil || !reflect.DeepEqual(i, proved) {
				t.Fatalf("%x is %+v, %v", text, i, err)
			}
		case fromMember && count%3 == 0 && open:
			if err != nil || i != auth.Local {
				t.Fatalf("without a passport: %+v, %v", i, err)
			}
		case i != nil || err == nil:
			t.Fatalf("%d of %x is %+v", count%3, text, i)
		}
	})
}

// fromMember returns the context of a call by the member n1.7.
func fromMember(f *testing.F) context.Context {
	f.Helper()
	meshes := make([]*peer.Mesh, 2)
	for n, name := range []string{"n1", "n2"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			f.Fatal(err)
		}
		meshes[n] = peer.New(peer.Options{Listener: l, Self: func() peer.Identity { return peer.Identity{NodeID: name, RaftID: name + ".7"} }})
		f.Cleanup(func() { _ = meshes[n].Close() })
	}
	l := meshes[1].Listener(peer.KindNode)
	dialled, err := meshes[0].Dial(f.Context(), peer.KindNode, meshes[1].Addr().String(), "")
	if err != nil {
		f.Fatal(err)
	}
	conn, err := l.Accept()
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _, _ = dialled.Close(), conn.Close() })
	_, info, err := meshes[1].Credentials().ServerHandshake(conn)
	if err != nil {
		f.Fatal(err)
	}
	ctx := grpcpeer.NewContext(context.Background(), &grpcpeer.Peer{AuthInfo: info})
	if from, ok := peer.From(ctx); !ok || !strings.HasPrefix(from.RaftID, "n1.") {
		f.Fatalf("%+v, %v", from, ok)
	}
	return ctx
}

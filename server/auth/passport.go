package auth

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	nodev1 "runlog/proto/node/v1"
)

// A passport names the identity of a caller in a call that one node forwards to another. Only
// members can make one: its code is an HMAC with a secret that all members have and no client does.
//
//	number:8 of the secret    HMAC-SHA-256:32    node.v1.Passport
//
// It names the node that made it, so that another node cannot use it.
const passportHead = 8 + sha256.Size

// Secret returns a secret of the members and its number; 0 asks for the newest.
type Secret func(number uint64) (secret []byte, is uint64, ok bool)

var (
	// ErrNoSecret means that the node does not have the members' secret now.
	ErrNoSecret  = errors.New("auth: the node does not have the secret of the members")
	errPassport  = unauthenticated("the passport of a forwarded call is not valid")
	passportName = "runlog/forwarded-identity/1"
)

// Passports makes and verifies passports.
type Passports struct{ Secret Secret }

// Make returns the passport of an identity for a call that a node forwards.
func (p Passports) Make(i *Identity, node string) ([]byte, error) {
	secret, number, ok := p.Secret(0)
	if !ok {
		return nil, ErrNoSecret
	}
	m := &nodev1.Passport{
		Node: node, Name: i.Name, Tenants: i.Tenants.Names, AllTenants: i.Tenants.All, Roles: uint32(i.Roles), Local: i == Local, TokenId: i.TokenID,
		ActFor: i.ActFor,
	}
	if !i.Until.IsZero() {
		m.Until = i.Until.UnixNano()
	}
	text := binary.BigEndian.AppendUint64(make([]byte, 0, 256), number)
	text = append(text, make([]byte, sha256.Size)...)
	text, err := proto.MarshalOptions{}.MarshalAppend(text, m)
	if err != nil {
		return nil, err
	}
	code, err := passportCode(secret, text)
	copy(text[8:], code)
	return text, err
}

// Verify returns the identity that a passport names. node is the member that forwarded the call, as
// its connection says.
func (p Passports) Verify(text []byte, node string) (*Identity, error) {
	if len(text) < passportHead {
		return nil, errPassport
	}
	secret, _, ok := p.Secret(binary.BigEndian.Uint64(text))
	if !ok {
		return nil, ErrNoSecret
	}
	code, err := passportCode(secret, text)
	if err != nil {
		return nil, err
	}
	var m nodev1.Passport
	if !hmac.Equal(code, text[8:passportHead]) || proto.Unmarshal(text[passportHead:], &m) != nil || m.Node != node {
		return nil, errPassport
	}
	if m.Local {
		return Local, nil
	}
	i := &Identity{Name: m.Name, Tenants: Tenants{All: m.AllTenants, Names: m.Tenants}, Roles: Roles(m.Roles), ActFor: m.ActFor, TokenID: m.TokenId}
	if m.Until != 0 {
		i.Until = time.Unix(0, m.Until)
	}
	return i, nil
}

// passportCode returns the code of a passport, over everything but itself.
func passportCode(secret, passport []byte) ([]byte, error) {
	key, err := hkdf.Key(sha256.New, secret, nil, passportName, sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("auth: key of passports: %w", err)
	}
	h := hmac.New(sha256.New, key)
	_, _ = h.Write(passport[:8]) // It never fails.
	_, _ = h.Write(passport[passportHead:])
	return h.Sum(nil), nil
}

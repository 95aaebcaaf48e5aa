package access

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
	"runlog/server/limits"
	"runlog/server/rpc"
	"runlog/server/rpc/wire"
	"runlog/storage"
	"runlog/storage/machine/access"
)

const (
	standardPage = 100
	largestPage  = 1000
	// maxTenants of one token.
	maxTenants = 100
	tokensUse  = "tokens"
)

// Node is what the service needs of the replica.
type Node interface {
	Execute(context.Context, storage.Command) (storage.Outcome, error)
	ReadIndex(context.Context) error
	Store() *storage.Store
}

// Options of the service. All are required.
type Options struct {
	Node  Node
	Usage limits.Usage
	Clock func() time.Time
	// Ticket makes a ticket for one watch by an identity, and returns when it ends.
	Ticket func(*auth.Identity) (text string, until time.Time, err error)
}

// Service answers AccessService.
type Service struct {
	runlogv1.UnimplementedAccessServiceServer
	opts Options
}

// New returns the service.
func New(opts Options) *Service {
	return &Service{opts: opts}
}

// WhoAmI returns the caller's identity.
func (s *Service) WhoAmI(ctx context.Context, _ *runlogv1.WhoAmIRequest) (*runlogv1.WhoAmIResponse, error) {
	i := auth.From(ctx)
	return &runlogv1.WhoAmIResponse{
		Name: i.Name, Tenants: i.Tenants.List(), Roles: i.Roles.List(), ExpireTime: wire.OptionalTime(i.Until), ActFor: i.ActFor,
	}, nil
}

// CreateWatchTicket gives the caller a ticket for one watch.
func (s *Service) CreateWatchTicket(ctx context.Context, _ *runlogv1.CreateWatchTicketRequest) (*runlogv1.CreateWatchTicketResponse, error) {
	text, until, err := s.opts.Ticket(auth.From(ctx))
	if err != nil {
		return nil, err
	}
	return &runlogv1.CreateWatchTicketResponse{Ticket: text, ExpireTime: timestamppb.New(until)}, nil
}

// CreateToken makes a token. It keeps the hash of its text alone.
func (s *Service) CreateToken(ctx context.Context, req *runlogv1.CreateTokenRequest) (*runlogv1.CreateTokenResponse, error) {
	t, err := s.decode(req)
	if err != nil {
		return nil, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("server: make the id of a token: %w", err)
	}
	text, hash := auth.NewToken()
	t.ID, t.Hash, t.CreatedBy = id.String(), hash, auth.From(ctx).Authenticated()
	err = s.execute(ctx)(access.PutToken(t))
	var taken *access.NameTakenError
	if errors.As(err, &taken) {
		return nil, rpc.Invalid("name", fmt.Sprintf("%s; choose another name, or revoke that token", taken.Error()))
	}
	if err != nil {
		return nil, err
	}
	return &runlogv1.CreateTokenResponse{Token: text, TokenId: t.ID}, nil
}

// decode reads and validates what a token may do.
func (s *Service) decode(req *runlogv1.CreateTokenRequest) (*access.Token, error) {
	var bad []contract.Violation
	fail := func(field, format string, args ...any) {
		bad = append(bad, contract.Violation{Field: field, Reason: contract.ReasonInvalidArgumentField, Description: fmt.Sprintf(format, args...)})
	}
	if fault := auth.TokenNameFault(req.Name); fault != "" {
		fail("name", "%s", fault)
	}
	if req.Name == auth.AdminTokenName {
		fail("name", "is that of the token of --admin-token-file: records could not tell them apart; choose another")
	}
	tenants := auth.TenantsOf(req.Tenants...)
	switch {
	case len(req.Tenants) == 0:
		fail("tenants", "is required: name tenants, or %q for all", auth.AllTenants)
	case len(tenants.Names) > maxTenants:
		fail("tenants", "has %d tenants, at most %d", len(tenants.Names), maxTenants)
	case tenants.All && len(req.Tenants) > 1:
		fail("tenants", "has %q beside others: name all tenants alone", auth.AllTenants)
	}
	for i, name := range req.Tenants {
		if fault := contract.ScopeFault(name); fault != "" && !tenants.All {
			fail(fmt.Sprintf("tenants[%d]", i), "%s", fault)
		}
	}
	if len(req.Roles) == 0 {
		fail("roles", "is required: one or more of %s", auth.AllRoles)
	}
	var roles []uint32
	for i, role := range req.Roles {
		if !auth.AllRoles.Overlaps(auth.RolesOf(role)) {
			fail(fmt.Sprintf("roles[%d]", i), "is none of %s", auth.AllRoles)
		}
		roles = append(roles, uint32(role))
	}
	slices.Sort(roles)
	t := &access.Token{Name: req.Name, Tenants: tenants.Names, AllTenants: tenants.All, Roles: slices.Compact(roles)}
	t.ActFor = auth.ActForOf(req.ActFor, func(place, wrong string) { fail("actFor"+place, "%s", wrong) })
	if i := slices.Index(req.ActFor, auth.TokenIdentity(req.Name)); i >= 0 {
		fail(fmt.Sprintf("actFor[%d]", i), "is the token's own name, in which it attests anyway: remove it")
	}
	if end := req.ExpireTime; end != nil {
		t.ExpiresAt = end.AsTime().UnixNano()
		if !end.IsValid() || !end.AsTime().After(s.opts.Clock()) || end.AsTime().Year() > 2261 {
			fail("expireTime", "must be in the future, before the year 2262")
		}
	}
	if len(bad) > 0 {
		return nil, contract.NewError(bad)
	}
	return t, nil
}

// execute returns the function that proposes an operation and waits for its effect.
func (s *Service) execute(ctx context.Context) func(storage.Operation, error) error {
	return func(op storage.Operation, err error) error {
		cmd, err := storage.EncodeOne(op, err)
		if err == nil {
			_, err = s.opts.Node.Execute(ctx, cmd)
		}
		return err
	}
}

// ListTokens returns a page of the tokens.
func (s *Service) ListTokens(ctx context.Context, req *runlogv1.ListTokensRequest) (*runlogv1.ListTokensResponse, error) {
	size, err := rpc.PageSize(req.PageSize, standardPage, largestPage)
	if err != nil {
		return nil, err
	}
	if err := s.opts.Node.ReadIndex(ctx); err != nil {
		return nil, err
	}
	pages := rpc.NewTokenDomain(tokensUse, s.opts.Node.Store().Incarnation())
	after := ""
	if req.PageToken != "" {
		body, ok := pages.OpenAs(rpc.TokenTokens, req.PageToken)
		if !ok {
			return nil, pages.Refused("pageToken", req.PageToken,
				rpc.Invalid("pageToken", "is not a token of this list: pass on nextPageToken as you got it"+rpc.StartAgain))
		}
		after = string(body)
	}
	list, err := access.Tokens(s.opts.Node.Store(), after, size+1)
	if err != nil {
		return nil, err
	}
	resp := &runlogv1.ListTokensResponse{}
	for _, t := range list[:min(size, len(list))] {
		resp.Tokens = append(resp.Tokens, wireToken(t))
	}
	if fit := wire.Fitting(resp.Tokens); fit < len(list) {
		resp.Tokens = resp.Tokens[:fit]
		resp.NextPageToken = pages.Seal(rpc.TokenTokens, []byte(list[fit-1].ID))
	}
	return resp, nil
}

// RevokeToken ends a token.
func (s *Service) RevokeToken(ctx context.Context, req *runlogv1.RevokeTokenRequest) (*runlogv1.RevokeTokenResponse, error) {
	if _, err := uuid.Parse(req.TokenId); err != nil {
		return nil, rpc.Invalid("tokenId", "is no id of a token; runlog token list shows the ids")
	}
	err := s.execute(ctx)(access.RevokeToken(req.TokenId, auth.From(ctx).Authenticated()))
	var missing *access.NotFoundError
	if errors.As(err, &missing) {
		return nil, rpc.Invalid("tokenId", missing.Error()+"; runlog token list shows the ids")
	}
	if err != nil {
		return nil, err
	}
	t, err := access.TokenByID(s.opts.Node.Store(), req.TokenId)
	if err != nil || t == nil {
		return nil, errors.Join(err, fmt.Errorf("server: token %s is gone", req.TokenId))
	}
	return &runlogv1.RevokeTokenResponse{Token: wireToken(t)}, nil
}

func wireToken(t *access.Token) *runlogv1.Token {
	m := &runlogv1.Token{
		TokenId: t.ID, Name: t.Name, Tenants: tenantsOf(t).List(), ActFor: t.ActFor,
		CreateTime: wire.Timestamp(t.CreatedAt), ExpireTime: wire.Timestamp(t.ExpiresAt), RevokeTime: wire.Timestamp(t.RevokedAt),
		CreatedBy: wire.Optional(t.CreatedBy.Name), CreatedByTokenId: wire.Optional(t.CreatedBy.TokenID),
		RevokedBy: wire.Optional(t.RevokedBy.Name), RevokedByTokenId: wire.Optional(t.RevokedBy.TokenID),
	}
	for _, role := range t.Roles {
		m.Roles = append(m.Roles, runlogv1.Role_Value(role))
	}
	return m
}

func tenantsOf(t *access.Token) auth.Tenants {
	return auth.Tenants{All: t.AllTenants, Names: t.Tenants}
}

// Lookup returns the token with a hash as authentication needs it; nil: there is none.
func Lookup(store *storage.Store, hash auth.TokenHash) (*auth.Token, error) {
	t, err := access.TokenByHash(store, hash)
	if err != nil || t == nil {
		return nil, err
	}
	out := &auth.Token{ID: t.ID, Name: t.Name, Tenants: tenantsOf(t), ActFor: t.ActFor, Revoked: t.RevokedAt != 0}
	for _, role := range t.Roles {
		out.Roles |= auth.RolesOf(runlogv1.Role_Value(role))
	}
	if t.ExpiresAt != 0 {
		out.Until = time.Unix(0, t.ExpiresAt)
	}
	return out, nil
}

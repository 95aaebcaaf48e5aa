package members

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/auth"
	"runlog/server/join"
	"runlog/server/rpc"
	"runlog/server/rpc/wire"
	"runlog/storage"
	tokens "runlog/storage/machine/join"
)

const (
	// standardTTL and longestTTL bound how long a join token is valid.
	standardTTL = time.Hour
	longestTTL  = 30 * 24 * time.Hour
	// mostUses of one join token: more nodes than a cluster has.
	mostUses = 100
)

// CreateJoinToken makes a join token. It keeps the hash of its text alone.
func (s *Service) CreateJoinToken(ctx context.Context, req *runlogv1.CreateJoinTokenRequest) (*runlogv1.CreateJoinTokenResponse, error) {
	var bad []contract.Violation
	fail := func(field, format string, args ...any) {
		bad = append(bad, contract.Violation{Field: field, Reason: contract.ReasonInvalidArgumentField, Description: fmt.Sprintf(format, args...)})
	}
	now := s.opts.Clock()
	t := &tokens.Token{Uses: 1, ExpiresAt: now.Add(standardTTL).UnixNano(), CreatedBy: auth.From(ctx).Authenticated()}
	if end := req.ExpireTime; end != nil {
		at := end.AsTime()
		if !end.IsValid() || !at.After(now) || at.After(now.Add(longestTTL)) {
			fail("expireTime", "must be in the future, at most %d days from now", longestTTL/(24*time.Hour))
		}
		t.ExpiresAt = at.UnixNano()
	}
	if req.Uses != nil {
		if t.Uses = req.GetUses(); t.Uses < 1 || t.Uses > mostUses {
			fail("uses", "must be from 1 to %d", mostUses)
		}
	}
	if len(bad) > 0 {
		return nil, contract.NewError(bad)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("server: make the id of a join token: %w", err)
	}
	text, hash := join.NewToken()
	t.ID, t.Hash = id.String(), hash
	err = s.execute(ctx)(tokens.PutToken(t))
	if errors.Is(err, tokens.ErrTooMany) {
		return nil, &contract.Error{Reason: contract.ReasonMembershipRefused, Message: err.Error() + "; use one of them, or wait until the oldest is gone"}
	}
	if err != nil {
		return nil, err
	}
	return &runlogv1.CreateJoinTokenResponse{Token: text, TokenId: t.ID, ExpireTime: wire.Timestamp(t.ExpiresAt)}, nil
}

// ListJoinTokens returns the join tokens.
func (s *Service) ListJoinTokens(ctx context.Context, _ *runlogv1.ListJoinTokensRequest) (*runlogv1.ListJoinTokensResponse, error) {
	if err := s.opts.Node.ReadIndex(ctx); err != nil {
		return nil, err
	}
	list, err := tokens.Tokens(s.opts.Store)
	if err != nil {
		return nil, err
	}
	resp := &runlogv1.ListJoinTokensResponse{}
	for _, t := range list {
		resp.Tokens = append(resp.Tokens, wireToken(t))
	}
	return resp, nil
}

// RevokeJoinToken ends a join token.
func (s *Service) RevokeJoinToken(ctx context.Context, req *runlogv1.RevokeJoinTokenRequest) (*runlogv1.RevokeJoinTokenResponse, error) {
	if _, err := uuid.Parse(req.TokenId); err != nil {
		return nil, rpc.Invalid("tokenId", "is no id of a join token; runlog cluster token list shows the ids")
	}
	err := s.execute(ctx)(tokens.RevokeToken(req.TokenId, auth.From(ctx).Authenticated()))
	if missing, ok := errors.AsType[*tokens.NotFoundError](err); ok {
		return nil, rpc.Invalid("tokenId", missing.Error()+"; runlog cluster token list shows the ids")
	}
	if err != nil {
		return nil, err
	}
	t, err := tokens.TokenByID(s.opts.Store, req.TokenId)
	if err != nil || t == nil {
		return nil, errors.Join(err, fmt.Errorf("server: join token %s is gone", req.TokenId))
	}
	return &runlogv1.RevokeJoinTokenResponse{Token: wireToken(t)}, nil
}

func wireToken(t *tokens.Token) *runlogv1.JoinToken {
	return &runlogv1.JoinToken{
		TokenId: t.ID, Uses: t.Uses, Used: t.Used,
		CreateTime: wire.Timestamp(t.CreatedAt), ExpireTime: wire.Timestamp(t.ExpiresAt), RevokeTime: wire.Timestamp(t.RevokedAt),
		CreatedBy: wire.Optional(t.CreatedBy.Name), CreatedByTokenId: wire.Optional(t.CreatedBy.TokenID),
		RevokedBy: wire.Optional(t.RevokedBy.Name), RevokedByTokenId: wire.Optional(t.RevokedBy.TokenID),
	}
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

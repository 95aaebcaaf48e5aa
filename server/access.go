package server

import (
	"context"
	"slices"

	"google.golang.org/grpc"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/raft"
	"runlog/server/access"
	"runlog/server/accesslog"
	"runlog/server/auth"
	"runlog/server/datadir"
	"runlog/server/rpc"
	"runlog/storage/machine/signing"
)

// openAuthentication makes this node find out which identity calls. It needs the replica and the
// signer.
func (s *Server) openAuthentication() error {
	a, err := auth.New(s.stopping, auth.Options{
		Config: s.opts.Access, Token: s.lookupToken, Open: !s.opts.Authenticate, Clock: s.opts.Clock, Logger: s.log,
	})
	if err != nil {
		return err
	}
	log, err := s.openAccessLog()
	if err != nil {
		return err
	}
	me := s.cluster.Identity()
	s.access.Store(&rpc.Access{
		Authenticator: a, Passports: auth.Passports{Secret: s.memberSecret}, Open: !s.opts.Authenticate, Node: me.RaftID(),
		CheckEvery: rpc.CheckStreamEvery,
		Log:        log,
		Limits:     s.replica.Limits(),
	})
	return nil
}

// openAccessLog opens the access log; nil if every caller has every right.
func (s *Server) openAccessLog() (rpc.AccessLog, error) {
	if !s.opts.Authenticate {
		return nil, nil
	}
	atLeader := s.chain(rpc.CallerClient).AtLeader
	events := s.service(&runlogv1.EventService_ServiceDesc)
	here := func(ctx context.Context, req any) (any, error) {
		impl, open := events.Impl().(runlogv1.EventServiceServer)
		if !open {
			return nil, raft.ErrNotLeader
		}
		return impl.AppendEvents(ctx, req.(*runlogv1.AppendEventsRequest))
	}
	me := s.cluster.Identity()
	log, err := accesslog.Open(accesslog.Options{
		Node: me.NodeID, Cluster: me.ClusterID, FS: s.opts.FS, Path: s.dir.File(datadir.AccessFile),
		Clock: s.opts.Clock, Logger: s.log, Registerer: s.opts.Registry,
		Append: func(ctx context.Context, req *runlogv1.AppendEventsRequest) error {
			_, err := atLeader(s.access.Load().As(ctx, rpc.AccessIdentity), runlogv1.EventService_AppendEvents_FullMethodName, req, here)
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	s.accessLog = log
	s.onClose(log.Close)
	return log, nil
}

// service returns a registered service.
func (s *Server) service(desc *grpc.ServiceDesc) *rpc.Service {
	i := slices.IndexFunc(s.services, func(x *rpc.Service) bool { return x.Desc == desc })
	return s.services[i]
}

// lateTokensASecond bounds how often an unknown token makes a node ask the leader.
const lateTokensASecond = 20

// lookupToken returns the token with a hash; nil: there is none. A token that was just made may not
// be applied here: the node asks the leader how far the log is, but not for any number of tokens
// that do not exist.
func (s *Server) lookupToken(ctx context.Context, hash auth.TokenHash) (*auth.Token, error) {
	if hash == s.opts.AdminToken {
		return &auth.Token{Name: auth.AdminTokenName, Tenants: auth.Tenants{All: true}, Roles: auth.AllRoles}, nil
	}
	t, err := access.Lookup(s.replica.Store(), hash)
	if t != nil || err != nil || !s.lateTokens.Allow() || s.replica.ReadIndex(ctx) != nil {
		return t, err
	}
	return access.Lookup(s.replica.Store(), hash)
}

// memberSecret returns a secret that all members have and no client does: the private signing key
// with a number; 0: the newest.
func (s *Server) memberSecret(number uint64) (secret []byte, is uint64, ok bool) {
	if number == 0 {
		last, err := signing.LastKey(s.replica.Store())
		if err != nil {
			return nil, 0, false
		}
		number = last.Number
	}
	secret, ok = s.signingKey(number)
	return secret, number, ok
}

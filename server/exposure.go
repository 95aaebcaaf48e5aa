package server

import (
	"errors"
	"fmt"
	"net"
)

// CheckExposure refuses options of a node that other machines would reach without TLS or without
// authentication, unless Insecure accepts that (SEC-1). The admin listener has no TLS. Nodes
// authenticate each other by certificates. The options have their defaults.
func (o *Options) CheckExposure() error {
	if o.Insecure {
		return nil
	}
	var errs []error
	for _, l := range []struct{ flag, address string }{{"--grpc-listen", o.GRPCListen}, {"--http-listen", o.HTTPListen}} {
		lacks := ""
		switch {
		case isLoopback(l.address) || o.ClientTLS.Cert != "" && o.Authenticate:
			continue
		case o.ClientTLS.Cert != "":
			lacks = "callers need no credentials: add --auth required"
		case o.Authenticate:
			lacks = "tokens and data would go in plain text: add --tls-cert and --tls-key"
		default:
			lacks = "anybody could read and write: add --tls-cert, --tls-key and --auth required"
		}
		errs = append(errs, fmt.Errorf("%s %s is reached from other machines, and %s; --insecure accepts it as it is", l.flag, l.address, lacks))
	}
	if !isLoopback(o.AdminListen) {
		errs = append(errs, fmt.Errorf("--admin-listen %s is reached from other machines, and tokens and profiles would go in plain text: listen on loopback, and let --metrics-listen serve the metrics; --insecure accepts it as it is", o.AdminListen))
	}
	if o.MetricsListen != "" && !isLoopback(o.MetricsListen) && o.ClientTLS.Cert == "" {
		errs = append(errs, fmt.Errorf("--metrics-listen %s is reached from other machines, and metrics would go in plain text: add --tls-cert and --tls-key; --insecure accepts it as it is", o.MetricsListen))
	}
	if !isLoopback(o.RaftListen) && o.TLS.Cert == "" {
		errs = append(errs, fmt.Errorf("--raft-listen %s is reached from other machines, and any of them could speak for a member: add --node-ca, --node-cert and --node-key; --insecure accepts it as it is", o.RaftListen))
	}
	return errors.Join(errs...)
}

// warnOfExposure tells at every start what --insecure accepts.
func (s *Server) warnOfExposure() {
	if o := &s.opts; o.Insecure {
		s.log.Warn("insecure node; other machines may reach it", "grpc", o.GRPCListen, "http", o.HTTPListen,
			"admin", o.AdminListen, "metrics", o.MetricsListen, "raft", o.RaftListen, "tls", o.ClientTLS.Cert != "", "authentication", o.Authenticate, "nodeTLS", o.TLS.Cert != "",
			"remedy", "use --tls-cert, --tls-key, --auth required and --node-ca, and --admin-listen on loopback")
	}
}

// isLoopback reports whether only this machine reaches an address.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

package server

import (
	"net/http"

	"runlog/server/audit"
	"runlog/server/cosign"
)

// openWitnesses starts to ask witnesses for their signatures, if there are any.
func (s *Server) openWitnesses(signer *audit.Signer) {
	o := &s.opts
	if len(o.Witnesses) == 0 {
		return
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if o.DialOut != nil {
		transport.DialContext = o.DialOut
	}
	c := cosign.New(cosign.Options{
		Store: s.replica.Store(), Witnesses: o.Witnesses, Leading: s.replica.Leading, ReadIndex: s.replica.ReadIndex,
		Propose: s.replica.Submit, Prove: signer.Consistency, Transport: transport, Alerts: &s.alerts, Logger: s.log, Registry: o.Registry,
	})
	s.onClose(func() error {
		err := c.Close()
		transport.CloseIdleConnections()
		return err
	})
}

package session

import (
	"strings"
	"testing"
)

// TestEnvironment: a mistyped variable is refused with the name that was meant. Variables of other
// programs, and those that Kubernetes and Docker set for a service named runlog, are none of it.
func TestEnvironment(t *testing.T) {
	known := []string{"RUNLOG_GRPC_LISTEN", "RUNLOG_HTTP_LISTEN", "RUNLOG_DATA_DIR", "RUNLOG_CONFIG"}
	for line, want := range map[string]string{
		"RUNLOG_SERVER=a":        "",
		"RUNLOG_GRPC_LISTEN=a:1": "",
		"RUNLOGX=1":              "",
		"MY_RUNLOG_DIR=1":        "",
		"runlog_server=1":        "",
		"RUNLOG_GRPC_LISTN=a":    "RUNLOG_GRPC_LISTN; did you mean RUNLOG_GRPC_LISTEN?",
		"RUNLOG_SEVER=":          "RUNLOG_SEVER; did you mean RUNLOG_SERVER?",
		"RUNLOG_DATADIR=/x":      "did you mean RUNLOG_DATA_DIR?",
		"RUNLOG_=1":              "did you mean",
		"RUNLOG_RETENTION=1=2":   "RUNLOG_RETENTION; unset it; runlog serve --help lists the flags",

		"RUNLOG_SERVICE_HOST=10.0.0.1":             "",
		"RUNLOG_SERVICE_PORT=7410":                 "",
		"RUNLOG_SERVICE_PORT_GRPC=7410":            "",
		"RUNLOG_PORT=tcp://10.0.0.1:7410":          "",
		"RUNLOG_PORT_7410_TCP=tcp://10.0.0.1:7410": "",
		"RUNLOG_PORT_7410_TCP_ADDR=10.0.0.1":       "",
		"RUNLOG_PORT_7410_TCP_PROTO=tcp":           "",
		"RUNLOG_HEADLESS_SERVICE_HOST=10.0.0.1":    "",
		"RUNLOG_HEADLESS_PORT_7410_TCP_PORT=7410":  "",
		"RUNLOG_PORT_7410=tcp":                     "RUNLOG_PORT_7410; ",
	} {
		s := Session{Environ: func() []string { return []string{"HOME=/root", line, "PATH=/bin"} }}
		err := s.CheckEnvironment(known)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

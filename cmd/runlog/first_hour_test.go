package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"runlog/server/servertest/procs"
)

// countedPort is the port of a node, in a loop over nodes.
var countedPort = regexp.MustCompile(`75\$\{i\}\d`)

// TestFirstHour runs the console blocks of docs/first-hour.md as they are written. Only the ports
// differ from the text.
func TestFirstHour(t *testing.T) {
	t.Parallel()
	var as, written []string
	ports := "ports=("
	reserve := func(port string) (address string) {
		address = procs.Reserve(t, 1)[0]
		_, own, _ := net.SplitHostPort(address)
		ports += fmt.Sprintf("[%s]=%s ", port, own)
		as, written = append(as, ":"+port, ":"+own), append(written, ":"+own, ":"+port)
		return address
	}
	sh := shell{t: t, dir: t.TempDir(), env: append(os.Environ(), asRunlog+"=1",
		"PATH="+binDir(t)+string(os.PathListSeparator)+os.Getenv("PATH"))}
	for i, name := range []string{"GRPC", "HTTP", "ADMIN", "RAFT"} { // A node without flags.
		sh.env = append(sh.env, fmt.Sprintf("RUNLOG_%s_LISTEN=%s", name, reserve(fmt.Sprint("741", i))))
		for node := range 3 {
			reserve(fmt.Sprintf("75%d%d", node+1, i))
		}
	}
	for _, s := range readConsole(t, filepath.Join("..", "..", "docs", "first-hour.md")) {
		command := strings.NewReplacer(as...).Replace(s.command)
		if counted := countedPort.ReplaceAllString(command, "$${ports[$0]}"); counted != command {
			command = ports + "); " + counted
		}
		got := strings.NewReplacer(written...).Replace(sh.run(command))
		if want, have := steady(s.want), steady(got); !matches(want, have) {
			t.Errorf("line %d: $ %s\nprinted:\n%s\nthe document says:\n%s", s.line, s.command, have, want)
		}
	}
}

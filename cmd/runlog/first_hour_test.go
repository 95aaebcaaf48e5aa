package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFirstHour runs the console blocks of docs/first-hour.md as they are written. Only the first
// digits of the ports differ from the text.
func TestFirstHour(t *testing.T) {
	t.Parallel()
	one, three := freePorts(t, 10, 11, 12, 13), freePorts(t, 10, 11, 12, 13, 20, 21, 22, 23, 30, 31, 32, 33)
	as, written := []string{":74", ":" + one, ":75", ":" + three}, []string{":" + one, ":74", ":" + three, ":75"}
	sh := shell{t: t, dir: t.TempDir(), env: append(os.Environ(), asRunlog+"=1",
		"PATH="+binDir(t)+string(os.PathListSeparator)+os.Getenv("PATH"))}
	for i, name := range []string{"GRPC", "HTTP", "ADMIN", "RAFT"} { // A node without flags.
		sh.env = append(sh.env, fmt.Sprintf("RUNLOG_%s_LISTEN=127.0.0.1:%s1%d", name, one, i))
	}
	for _, s := range readConsole(t, filepath.Join("..", "..", "docs", "first-hour.md")) {
		got := strings.NewReplacer(written...).Replace(sh.run(strings.NewReplacer(as...).Replace(s.command)))
		if want, have := steady(s.want), steady(got); !matches(want, have) {
			t.Errorf("line %d: $ %s\nprinted:\n%s\nthe document says:\n%s", s.line, s.command, have, want)
		}
	}
}

// freePorts returns the first digits of ports that are free with each of these last digits.
func freePorts(t *testing.T, last ...int) string {
	t.Helper()
	for range 100 {
		first := 100 + rand.IntN(200)
		free := true
		for _, l := range last {
			listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 100*first+l))
			if err != nil {
				free = false
				break
			}
			defer listener.Close()
		}
		if free {
			return fmt.Sprint(first)
		}
	}
	t.Fatal("no free ports")
	return ""
}

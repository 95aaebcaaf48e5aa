package server_test

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"runlog/server"
	"runlog/server/servertest"
)

// browserPage watches a run and all runs and reports what it receives. A browser lets a page call
// its own origin only, so the page comes from the address of the node.
const browserPage = `<!doctype html><meta charset="utf-8"><script>
const follow = (name, address) => {
  const source = new EventSource(address);
  source.onopen = () => console.log(name + " open");
  source.addEventListener("caughtUp", () => console.log(name + " caughtUp"));
  source.addEventListener("watermark", (e) => {
    const mark = JSON.parse(e.data).watermark;
    console.log(name + " " + mark.runId + "@" + mark.lastEventSeq + " " + mark.status);
  });
};
follow("one", "/v1/runs/run:watch");
follow("many", "/v1/runs:watch?tenantId=tenant&includeExisting=true");
</script>`

// TestBrowserWATCH4 lets a real browser watch a run, and all runs, across a restart of the node.
// The browser resumes by itself and receives nothing twice. make check-browser runs it.
func TestBrowserWATCH4(t *testing.T) {
	tool := os.Getenv("RUNLOG_BROWSER")
	if tool == "" {
		t.Skip("needs a browser: make check-browser")
	}
	n := servertest.Start(t, servertest.OnMachine(t), func(o *server.Options) { o.Heartbeat = 100 * time.Millisecond })
	n.Append("run", servertest.NewEvent("RunStarted"))
	n.Settle()
	var address atomic.Value
	address.Store(n.Server.Addresses().HTTP)
	site := httptest.NewServer(siteOf(&address))
	defer site.Close()

	browser := exec.Command("node", tool, site.URL)
	stdin, err := browser.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := browser.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	browser.Stderr = os.Stderr
	if err := browser.Start(); err != nil {
		t.Fatal(err)
	}
	said := make(chan string, 1000)
	go func() {
		defer close(said)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			said <- lines.Text()
		}
	}()
	defer func() {
		_ = stdin.Close()
		for range said {
		}
		if err := browser.Wait(); err != nil {
			t.Errorf("the browser: %v", err)
		}
	}()

	hears(t, said, "one run@1 RUNNING", "one caughtUp", "many run@1 RUNNING", "many caughtUp")
	n.Append("run", servertest.NewEvent("RunPaused"))
	hears(t, said, "one run@2 PAUSED", "many run@2 PAUSED")
	n.Restart()
	n.Append("run", servertest.NewEvent("RunResumed"), servertest.NewEvent("RunCompleted"))
	n.Settle()
	address.Store(n.Server.Addresses().HTTP)
	hears(t, said, "one open", "one run@4 COMPLETED", "one caughtUp", "many open", "many run@4 COMPLETED", "many caughtUp")
}

// siteOf serves the page and the node behind it. While the node is down connections break, as they
// would without it.
func siteOf(address *atomic.Value) http.Handler {
	node := &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", address.Load().(string)
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/") {
			node.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(browserPage))
	})
}

// hears waits for lines, in any order, and wants no other watermark before all of them are there.
func hears(t testing.TB, said <-chan string, lines ...string) {
	t.Helper()
	missing := map[string]bool{}
	for _, line := range lines {
		missing[line] = true
	}
	deadline := time.After(servertest.Patience)
	for len(missing) > 0 {
		select {
		case line, open := <-said:
			switch {
			case !open:
				t.Fatalf("the browser ended before %v", missing)
			case missing[line]:
				delete(missing, line)
			case strings.Contains(line, "@"):
				t.Errorf("told %q, want %v", line, missing)
			}
		case <-deadline:
			t.Fatalf("not told after %v: %v", servertest.Patience, missing)
		}
	}
}

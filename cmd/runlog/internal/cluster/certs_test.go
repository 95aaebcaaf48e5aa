package cluster

import (
	"runlog/client/command/session"

	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"runlog/client/command/output"

	"runlog/server/peer"
)

// certs runs the command with a directory and further arguments.
func certs(t *testing.T, format output.Format, dir string, args ...string) (output.ExitCode, string, string) {
	t.Helper()
	var out, errs bytes.Buffer
	a := &app{&session.Session{Output: output.Output{Stdout: &out, Stderr: &errs, Format: format}}}
	cmd := a.clusterCertsCommand()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append([]string{"--dir", dir}, args...))
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		code, text := a.Explain(err)
		return code, out.String(), text
	}
	return output.ExitOK, out.String(), ""
}

// TestCertsMakesWhatNodesLoad shows that the first call makes the authority, later ones use it, and
// that the files are what a node takes.
func TestCertsMakesWhatNodesLoad(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "here")
	code, out, text := certs(t, output.Text, dir, "n1", "n2")
	if code != output.ExitOK || strings.Count(out, "\n") != 4 || !strings.Contains(out, "(authority)") {
		t.Fatalf("exit %d, %s:\n%s", code, text, out)
	}
	code, out, text = certs(t, output.JSON, dir, "n3", "--days", "30")
	var row certRow
	if err := json.Unmarshal([]byte(out), &row); err != nil || code != output.ExitOK {
		t.Fatalf("exit %d, %s: %v:\n%s", code, text, err, out)
	}
	if left := time.Until(row.Ends); row.Node != "n3" || row.Authority || left < 29*24*time.Hour || left > 30*24*time.Hour {
		t.Errorf("made was %+v", row)
	}
	ca, _ := peer.CAFiles(dir)
	for _, node := range []string{"n1", "n2", "n3"} {
		cert, key := peer.NodeFiles(dir, node)
		if loaded, err := peer.LoadTLS(ca, cert, key, nil); err != nil || loaded.NodeID() != node {
			t.Errorf("%s: %v", node, err)
		}
	}
}

// TestCertsRefusesBeforeItMakesAnything shows the exit codes, and that a refused call leaves no
// files.
func TestCertsRefusesBeforeItMakesAnything(t *testing.T) {
	for name, test := range map[string]struct {
		there []string
		args  []string
		code  output.ExitCode
		says  string
	}{
		"a name that is none":      {nil, []string{"n1", "ca"}, output.ExitUsage, `"ca"`},
		"a name twice":             {nil, []string{"n1", "n1"}, output.ExitUsage, "n1 is named twice"},
		"no time":                  {nil, []string{"n1", "--days", "0"}, output.ExitUsage, "one day at least"},
		"a certificate is there":   {[]string{"n2.crt"}, []string{"n1", "n2"}, output.ExitRefused, "n2 has"},
		"a key is there":           {[]string{"n2.key"}, []string{"n1", "n2"}, output.ExitRefused, "n2 has"},
		"an authority without key": {[]string{"ca.crt"}, []string{"n1"}, output.ExitRefused, "ca.crt is there without"},
		"a key without authority":  {[]string{"ca.key"}, []string{"n1"}, output.ExitRefused, "ca.key is there without"},
		"an authority that is not": {[]string{"ca.crt", "ca.key"}, []string{"n1"}, output.ExitFailed, "certificate authority in"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, f := range test.there {
				if err := os.WriteFile(filepath.Join(dir, f), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			code, out, text := certs(t, output.Text, dir, test.args...)
			if code != test.code || out != "" || !strings.Contains(text, test.says) || strings.Contains(text, "\n") {
				t.Errorf("exit %d, stdout %q, %q", code, out, text)
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != len(test.there) {
				t.Errorf("left are %v, %v", entries, err)
			}
		})
	}
}

// TestCertsWantsNodesAndADirectory shows the faults of the command line.
func TestCertsWantsNodesAndADirectory(t *testing.T) {
	a := &app{&session.Session{}}
	for _, args := range [][]string{{"--dir", t.TempDir()}, {"n1"}} {
		cmd := a.clusterCertsCommand()
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(args)
		err := cmd.ExecuteContext(t.Context())
		if err == nil {
			t.Errorf("%q was taken", args)
		}
		// What cobra itself finds is made a usage error by run.
		if code, text := a.Explain(err); code != output.ExitUsage && !strings.Contains(text, "takes the names of the nodes") {
			t.Errorf("%q: exit %d, %s", args, code, text)
		}
	}
}

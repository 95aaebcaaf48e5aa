package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"runlog/client/command/output"
	"runlog/client/command/session"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// session is one command line and what it printed.
type invocation struct {
	args   []string
	stdin  string
	width  int // of a terminal on stdout
	height int // of the same
	stdout bytes.Buffer
	stderr bytes.Buffer
	code   output.ExitCode
}

// do runs the command line against the fake.
func (s *invocation) do(ctx context.Context, t *testing.T, fake *fakeServer) {
	t.Helper()
	one := testSession(&s.stdout, &s.stderr)
	one.Stdin, one.StdoutWidth, one.StdoutHeight, one.DialOptions = strings.NewReader(s.stdin), s.width, s.height, fake.serve(t)
	s.code = run(ctx, one, append([]string{"--server", "passthrough:///fake"}, s.args...))
}

var took = regexp.MustCompile(`in [0-9.µm]+s \([0-9,]+/s\)|"seconds":[^,]+,"eventsPerSecond":[0-9]+|"seconds":[0-9.e-]+`)

// text is the session as a golden file tells it.
func (s *invocation) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "$ runlog %s\n", strings.Join(s.args, " "))
	b.WriteString(took.ReplaceAllString(s.stdout.String(), "<time>"))
	if s.stderr.Len() > 0 {
		b.WriteString("--- stderr\n" + took.ReplaceAllString(s.stderr.String(), "<time>"))
	}
	fmt.Fprintf(&b, "--- exit %d\n", s.code)
	return b.String()
}

// testSession is the session of a command line in this process, without an environment.
func testSession(out, errs *bytes.Buffer) *session.Session {
	return &session.Session{
		Output: output.Output{Stdout: out, Stderr: errs}, Getenv: func(string) string { return "" }, Version: version,
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -update rewrites it)\ngot:\n%s\nwant:\n%s", path, got, want)
	}
}

// TestGolden shows what users see: for each command its output in both formats, its errors, its
// exit code.
func TestGolden(t *testing.T) {
	t.Parallel()
	seed := readTestdata(t, "run-1.jsonl")
	for name, s := range map[string]*invocation{
		"help-exit-codes":     {args: []string{"help", "exit-codes"}},
		"help-append":         {args: []string{"append", "--help"}},
		"unknown-command":     {args: []string{"apend"}},
		"unknown-flag":        {args: []string{"events", "run-1", "--tpye", "X"}},
		"missing-argument":    {args: []string{"snapshot"}},
		"bad-output":          {args: []string{"runs", "-o", "yaml"}},
		"append":              {args: []string{"append", "-"}, stdin: seed + readTestdata(t, "run-2.jsonl")},
		"append-json":         {args: []string{"append", "testdata/run-1.jsonl", "-o", "json"}},
		"append-twice":        {args: []string{"append", "-f", "testdata/run-1.jsonl", "testdata/run-1-diverged.jsonl"}},
		"append-bad-lines":    {args: []string{"append", "--keep-going", "-f", "testdata/bad.jsonl"}},
		"append-stops":        {args: []string{"append", "-f", "testdata/bad.jsonl"}},
		"append-dry-run":      {args: []string{"append", "--dry-run", "-f", "testdata/bad.jsonl"}},
		"append-dry-run-json": {args: []string{"append", "--dry-run", "--keep-going", "-o", "json", "-f", "testdata/bad.jsonl"}},
		"append-array":        {args: []string{"append", "-"}, stdin: "[{\"runId\":\"r\"}]\n"},
		"append-pretty":       {args: []string{"append", "-"}, stdin: "{\n  \"runId\": \"r\"\n}\n"},
		"append-odd-types":    {args: []string{"append", "-"}, stdin: oddTypes(seed)},
		"append-nothing":      {args: []string{"append"}},
		"append-no-file":      {args: []string{"append", "testdata/run-1.jsonl", "testdata/none.jsonl"}},
		"append-directory":    {args: []string{"append", "testdata"}},
		"events":              {args: []string{"events", "seeded"}},
		"events-terminal":     {args: []string{"events", "seeded", "--limit", "3"}, width: 100},
		"events-json":         {args: []string{"events", "seeded", "--after-seq", "1", "--limit", "1", "-o", "json"}},
		"events-type":         {args: []string{"events", "seeded", "--type", "StepFailed", "--local"}},
		"events-types":        {args: []string{"events", "seeded", "--type", "StepFailed,RunFialed", "--type", "Beat", "--after-seq", "1"}},
		"events-strict":       {args: []string{"events", "seeded", "--type", "RunFialed", "--strict"}},
		"events-type-limit":   {args: []string{"events", "seeded", "--type", "StepStarted,StepFailed,Beat", "--limit", "1", "--strict"}},
		"events-help":         {args: []string{"events", "--help"}},
		"events-unknown-run":  {args: []string{"events", "none"}},
		"snapshot":            {args: []string{"snapshot", "failed"}},
		"snapshot-json":       {args: []string{"snapshot", "failed", "-o", "json"}},
		"snapshot-paused":     {args: []string{"snapshot", "paused"}},
		"snapshot-unknown":    {args: []string{"snapshot", "none"}},
		"snapshot-help":       {args: []string{"snapshot", "--help"}},
		"snapshot-bad-time":   {args: []string{"snapshot", "failed", "--as-of-time", "noon"}},
		"snapshot-no-time":    {args: []string{"snapshot", "failed", "--as-of-time", ""}},
		"snapshot-two-times":  {args: []string{"snapshot", "failed", "--as-of-time", "today", "--as-of-seq", "1"}},
		"snapshot-time-place": {args: []string{"snapshot", "failed", "--as-of-time", "today", "--as-of-position", "6f1c2a9d0b7e4c53-4"}},
		"diff":                {args: []string{"diff", "failed", "--from", "3", "--to", "2026-02-11T10:30"}},
		"diff-json":           {args: []string{"diff", "failed", "--to", "6f1c2a9d0b7e4c53-4", "-o", "json"}},
		"diff-same":           {args: []string{"diff", "paused"}},
		"diff-unknown":        {args: []string{"diff", "none"}},
		"diff-help":           {args: []string{"diff", "--help"}},
		"diff-no-moment":      {args: []string{"diff", "failed", "--from", "noon"}},
		"explain":             {args: []string{"explain", "failed", "load"}},
		"explain-json":        {args: []string{"explain", "failed", "load", "--as-of-seq", "2", "-o", "json"}},
		"explain-no-step":     {args: []string{"explain", "failed"}},
		"explain-help":        {args: []string{"explain", "--help"}},
		"watch":               {args: []string{"watch", "failed", "--for", "300ms"}},
		"watch-json":          {args: []string{"watch", "failed", "--for", "300ms", "-o", "json"}},
		"watch-until-done":    {args: []string{"watch", "failed", "--until-done"}},
		"watch-snapshot":      {args: []string{"watch", "failed", "--view", "snapshot", "--for", "300ms"}},
		"watch-event":         {args: []string{"watch", "seeded", "--view", "event", "--for", "300ms"}},
		"watch-event-json":    {args: []string{"watch", "seeded", "--view", "EVENT", "--for", "300ms", "-o", "json"}},
		"watch-bad-view":      {args: []string{"watch", "failed", "--view", "all"}},
		"watch-run-filtered":  {args: []string{"watch", "failed", "--tenant", "acme"}},
		"watch-runs":          {args: []string{"watch", "--for", "300ms"}},
		"watch-runs-json":     {args: []string{"watch", "--status", "failed", "--for", "300ms", "-o", "json"}},
		"watch-runs-statuses": {args: []string{"watch", "--status", "failed", "--status", "paused,waiting", "--for", "300ms"}},
		"watch-runs-until":    {args: []string{"watch", "--until-done"}},
		"watch-runs-types":    {args: []string{"watch", "--type", "RunFailed,RunPaused"}},
		"watch-runs-empty":    {args: []string{"watch", "--status", ""}},
		"watch-help":          {args: []string{"watch", "--help"}},
		"runs":                {args: []string{"runs"}},
		"runs-json":           {args: []string{"runs", "--status", "failed", "-o", "json"}},
		"runs-none":           {args: []string{"runs", "--status", "waiting"}},
		"runs-statuses":       {args: []string{"runs", "--status", "failed", "--status", "PAUSED"}},
		"runs-status-list":    {args: []string{"runs", "--status", "failed,PAUSED"}},
		"runs-bad-status":     {args: []string{"runs", "--status", "DONE"}},
		"runs-bad-statuses":   {args: []string{"runs", "--status", "failed,", "--status", "PAUSED"}},
		"runs-no-status":      {args: []string{"runs", "--status", ""}},
		"runs-no-tenant":      {args: []string{"runs", "--tenant", ""}},
		"runs-bad-time":       {args: []string{"runs", "--created-after", "noon"}},
		"runs-since":          {args: []string{"runs", "--created-after", "2026-02-11", "--created-before", "2026-02-11T10:30:01"}},
		"runs-time-place":     {args: []string{"runs", "--as-of-time", "today", "--as-of-position", "6f1c2a9d0b7e4c53-4"}},
		"runs-help":           {args: []string{"runs", "--help"}},
		"runs-get":            {args: []string{"runs", "get", "failed"}},
		"runs-get-json":       {args: []string{"runs", "get", "failed", "-o", "json"}},
		"runs-get-unknown":    {args: []string{"runs", "get", "none"}},
		"audit-help":          {args: []string{"audit", "--help"}},
		"audit-query":         {args: []string{"audit", "query", "--from", "2026-02-11", "--to", "2026-02-12"}},
		"audit-query-unseen":  {args: []string{"audit", "query", "--from", "2026-02-11", "--type", "StepFialed,RunFailed,Heartbeat"}},
		"audit-query-strict":  {args: []string{"audit", "query", "--from", "2026-02-11", "--type", "StepFialed,RunFailed", "--strict"}},
		"audit-query-tenant":  {args: []string{"audit", "query", "--from", "2026-02-11", "--tenant", "acne", "--type", "RunFailed"}},
		"audit-query-no-run":  {args: []string{"audit", "query", "--run", "run-9"}},
		"audit-query-run-9":   {args: []string{"audit", "query", "--run", "run-9", "--strict", "-o", "json"}},
		"audit-query-help":    {args: []string{"audit", "query", "--help"}},
		"audit-query-json":    {args: []string{"audit", "query", "--run", "run-2", "--type", "StepFailed", "-o", "json"}},
		"audit-query-minus":   {args: []string{"audit", "query", "--from", "beginning", "--limit", "-1"}},
		"audit-query-limit":   {args: []string{"audit", "query", "--from", "beginning", "--limit", "2"}},
		"audit-query-none":    {args: []string{"audit", "query", "--from", "2020-01-01", "--to", "2020-01-02"}},
		"audit-query-unset":   {args: []string{"audit", "query", "--from", "2026-02-11", "--tenant", ""}},
		"audit-query-open":    {args: []string{"audit", "query", "--from", "2026-02-11", "--to", "2200-01-01"}},
		"audit-query-whole":   {args: []string{"audit", "query"}},
		"audit-query-empty":   {args: []string{"audit", "query", "--from", "2026-02-12", "--to", "2026-02-11"}},
		"audit-query-time":    {args: []string{"audit", "query", "--from", "2026-02-11 10:30:02", "--to", "2026-02-11T10:30:04"}},
		"audit-query-types":   {args: []string{"audit", "query", "--from", "beginning", "--type", "RunFailed,StepFailed", "--type", `Custom"1\,2`}},
		"audit-query-no-type": {args: []string{"audit", "query", "--from", "beginning", "--type", "RunFailed,"}},
		"audit-query-late":    {args: []string{"audit", "query", "--from", "2300-01-01"}},
		"audit-query-24h":     {args: []string{"audit", "query", "--from", "24h"}},
		"audit-export-help":   {args: []string{"audit", "export", "--help"}},
		"audit-export-stdout": {args: []string{"audit", "export", "--run", "run-1", "--to", "2026-02-12", "--format", "csv", "-f", "-"}},
		"audit-export-open":   {args: []string{"audit", "export", "--from", "2026-02-11", "--to", "2200-01-01", "--format", "jsonl", "-f", "-"}},
		"audit-export-unseen": {args: []string{"audit", "export", "--from", "2026-02-11", "--type", "RunFialed", "--format", "jsonl", "-f", "-", "-o", "json"}},
		"audit-export-strict": {args: []string{"audit", "export", "--from", "2026-02-11", "--type", "RunFialed", "--strict", "-f", "testdata/never.csv"}},
		"audit-export-kind":   {args: []string{"audit", "export", "--from", "-7d", "-f", "events.xlsx"}},
		"audit-proof-help":    {args: []string{"audit", "proof", "--help"}},
		"audit-keys-help":     {args: []string{"audit", "keys", "--help"}},
		"audit-keys-none":     {args: []string{"audit", "keys", "-o", "json"}},
		"audit-rotate-help":   {args: []string{"audit", "rotate-key", "--help"}},
		"audit-verify-help":   {args: []string{"audit", "verify", "--help"}},
		"audit-verify-none":   {args: []string{"audit", "verify", "testdata/none.jsonl"}},
		"audit-verify-other":  {args: []string{"audit", "verify", "testdata/help-append.golden"}},
		"audit-verify-input":  {args: []string{"audit", "verify", "testdata/run-1.jsonl"}},
		"audit-verify-key":    {args: []string{"audit", "verify", "testdata/run-1.jsonl", "--key", "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble.Test(t, func(t *testing.T) { s.do(t.Context(), t, sampleServer()) })
			golden(t, name, s.text())
		})
	}
}

// oddTypes repeats the first line of a text without its eventId, with types that a person mistyped
// and one that is unknown.
func oddTypes(text string) string {
	var out strings.Builder
	line, _, _ := strings.Cut(text, "\n")
	line = regexp.MustCompile(`"eventId":"[^"]*",`).ReplaceAllString(line, "")
	for i, name := range []string{"Runstarted", "RunStatred", "RunStarted", "Runstarted", "HeartbeatSeen"} {
		odd := strings.Replace(line, `"Extra"`, strconv.Quote(name), 1)
		fmt.Fprintln(&out, strings.Replace(odd, `"logicalAttemptId":1`, fmt.Sprintf(`"logicalAttemptId":%d`, i+1), 1))
	}
	return out.String()
}

func readTestdata(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestVersion(t *testing.T) {
	for _, format := range []string{"table", "json"} {
		s := invocation{args: []string{"version", "-o", format}}
		s.do(t.Context(), t, &fakeServer{})
		if s.code != output.ExitOK || !strings.Contains(s.stdout.String(), version) {
			t.Errorf("%s: %s", format, s.text())
		}
	}
}

func TestServerOutOfReach(t *testing.T) {
	var out, errs bytes.Buffer
	code := run(t.Context(), testSession(&out, &errs), []string{"runs", "--server", "127.0.0.1:1"})
	const want = "runlog: server 127.0.0.1:1 cannot be reached (connection refused); start a node with \"runlog serve\", or name another with --server or RUNLOG_SERVER\n"
	if code != output.ExitUnavailable || out.Len() > 0 || errs.String() != want {
		t.Errorf("exit %d, stdout %q, stderr %q", code, out.String(), errs.String())
	}
}

// TestFailuresOfTheServer checks the exit code of each class of error, and that append says what it
// left.
func TestFailuresOfTheServer(t *testing.T) {
	for _, test := range []struct {
		err  error
		code output.ExitCode
	}{
		{status.Error(codes.Internal, "broken"), output.ExitFailed},
		{status.Error(codes.Unimplemented, "unknown method"), output.ExitFailed},
		{status.Error(codes.Unauthenticated, "who are you"), output.ExitForbidden},
		{status.Error(codes.PermissionDenied, "not you"), output.ExitForbidden},
		{status.Error(codes.DeadlineExceeded, "too late"), output.ExitTimeout},
		{status.Error(codes.Unavailable, "closing"), output.ExitUnavailable},
		{status.Error(codes.InvalidArgument, "no reason given"), output.ExitRefused},
	} {
		t.Run(status.Code(test.err).String(), func(t *testing.T) {
			s := invocation{args: []string{"append", "testdata/run-1.jsonl", "--timeout", "2s"}}
			s.do(t.Context(), t, &fakeServer{down: test.err})
			if s.code != test.code {
				t.Errorf("exit %d, want %d: %s", s.code, test.code, s.stderr.String())
			}
			lines := strings.Split(strings.TrimSpace(s.stderr.String()), "\n")
			if last := lines[len(lines)-1]; !strings.HasPrefix(last, "runlog: ") || !strings.Contains(last, "again") {
				t.Errorf("the last line does not say what to do: %s", last)
			}
		})
	}
}

// TestWhatIsStoredIsSaid: a command that could not store its input says that the counts are stored
// only if something of it is, and what helps.
func TestWhatIsStoredIsSaid(t *testing.T) {
	t.Parallel()
	const stored, credentials = "the counts above are stored", "with the right credentials, run the same command again"
	events := line("RunQueued", "mine", "") + "\n" + line("RunQueued", "foreign", "") + "\n"
	reserved := asStatus(&contract.Error{Reason: contract.ReasonReservedEventType, Message: "StepAttested is stored by AttestStep alone"})
	for name, test := range map[string]struct {
		fake            *fakeServer
		stdin           string
		stored, retries bool
	}{
		"nothing, without the right":   {&fakeServer{foreign: "foreign"}, line("RunQueued", "foreign", ""), false, true},
		"a part, without the right":    {&fakeServer{foreign: "foreign"}, events, true, true},
		"nothing, of a reserved type":  {&fakeServer{down: reserved}, events, false, true},
		"nothing, without credentials": {&fakeServer{down: status.Error(codes.Unauthenticated, "who are you")}, events, false, true},
	} {
		s := &invocation{args: []string{"append", "-"}, stdin: test.stdin}
		s.do(t.Context(), t, test.fake)
		if says := s.stderr.String(); strings.Contains(says, stored) != test.stored || strings.Contains(says, credentials) != test.retries {
			t.Errorf("%s: %s", name, says)
		}
	}
}

// TestAppendUnderAFenceQUE8: a worker appends under the fence of its lease. If it has lost the
// lease, the command ends, and does not look for a wrong line.
func TestAppendUnderAFenceQUE8(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		newest uint64
		fence  string
		code   output.ExitCode
		says   string
	}{
		{2, "2", output.ExitOK, ""}, {0, "0", output.ExitOK, ""}, {2, "x", output.ExitUsage, "--fence"},
		{3, "2", output.ExitRefused, "runlog: LEASE_LOST: another worker has the run\n"},
		{3, "0", output.ExitRefused, "runlog: LEASE_LOST: another worker has the run\n"},
	} {
		s := &invocation{args: []string{"append", "testdata/run-1.jsonl", "--fence", test.fence}}
		s.do(t.Context(), t, &fakeServer{fence: test.newest})
		if says := s.stderr.String(); s.code != test.code || !strings.Contains(says, test.says) || test.code == output.ExitRefused && says != test.says {
			t.Errorf("fence %s of %d: exit %d, %s", test.fence, test.newest, s.code, says)
		}
	}
}

func TestCtrlC(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args []string
		code output.ExitCode
	}{
		"append":             {[]string{"append", "testdata/run-1.jsonl", "--timeout", "0"}, output.ExitInterrupted},
		"watch":              {[]string{"watch", "running"}, output.ExitOK},
		"watch --until-done": {[]string{"watch", "running", "--until-done"}, output.ExitInterrupted},
	} {
		t.Run(name, func(t *testing.T) {
			s := invocation{args: test.args}
			bubble.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(200*time.Millisecond, cancel)
				s.do(ctx, t, &fakeServer{down: asStatus(unknownLeader())})
			})
			if s.code != test.code {
				t.Errorf("exit %d, want %d: %s", s.code, test.code, s.stderr.String())
			}
		})
	}
}

func TestWatchUntilDone(t *testing.T) {
	mark := func(status runlogv1.RunStatus_Value) *runlogv1.Watermark {
		return &runlogv1.Watermark{RunId: "r", LastEventSeq: 3, Status: status}
	}
	live := &runlogv1.WatchRunResponse{Kind: &runlogv1.WatchRunResponse_Watermark{Watermark: mark(runlogv1.RunStatus_COMPLETED)}}
	caughtUp := &runlogv1.WatchRunResponse{Kind: &runlogv1.WatchRunResponse_CaughtUp{
		CaughtUp: &runlogv1.CaughtUp{Watermark: mark(runlogv1.RunStatus_CANCELLED)}}}
	for name, test := range map[string]struct {
		marks []*runlogv1.WatchRunResponse
		code  output.ExitCode
	}{
		"completed":        {[]*runlogv1.WatchRunResponse{live}, output.ExitOK},
		"had ended before": {[]*runlogv1.WatchRunResponse{caughtUp}, output.ExitRunNotOK},
		"not within --for": {nil, output.ExitTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			s := invocation{args: []string{"watch", "r", "--until-done", "--for", "300ms"}}
			bubble.Test(t, func(t *testing.T) { s.do(t.Context(), t, &fakeServer{marks: test.marks}) })
			if s.code != test.code {
				t.Errorf("exit %d, want %d: %s", s.code, test.code, s.stderr.String())
			}
		})
	}
}

// TestQuickstart appends the histories that the documentation starts with, twice.
func TestQuickstart(t *testing.T) {
	files, err := filepath.Glob("../../docs/quickstart/*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatal("no histories found", err)
	}
	s := invocation{args: append([]string{"append"}, append(files, files...)...)}
	s.do(t.Context(), t, &fakeServer{})
	if s.code != output.ExitOK || s.stderr.Len() > 0 || !strings.Contains(s.stdout.String(), "(0 diverged), 0 refused") {
		t.Errorf("%s", s.text())
	}
}

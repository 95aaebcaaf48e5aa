package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"runlog/client"
	"runlog/client/command/output"
	"runlog/client/command/session"
)

// maxAnswer bounds an answer of a runner.
const maxAnswer = 8 << 20

func (a *app) runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run FILE",
		Short: "Execute a manifest, and wait until its run waits or has ended",
		Long: `Store the manifest of a file at a runner, execute it, and wait until the run waits for an attestation or has
ended. A run of the same manifest again is another run. It waits for as long as the run takes, or at most for the
--timeout that is given.`,
		Example: "  runlog-runner run nightly.json --by jed",
		Args:    session.OneArgument("the file of a manifest"),
		RunE: func(cmd *cobra.Command, args []string) error {
			manifest, err := os.ReadFile(args[0])
			if err != nil {
				return output.UsageError("%v; name the file of a manifest that this user can read", err)
			}
			c, err := a.caller(cmd)
			if err != nil {
				return err
			}
			defer c.done()
			var stored, begun struct{ ID, Status string }
			if err := c.post("/api/manifests", manifest, &stored); err != nil {
				return err
			}
			if err := c.post("/api/runs", map[string]string{"manifest_id": stored.ID, "initiated_by": a.by}, &begun); err != nil {
				return err
			}
			for begun.Status == "running" {
				if err := c.call(http.MethodGet, "/api/runs/"+url.PathEscape(begun.ID)+"?wait=1m", nil, &begun); err != nil {
					return err
				}
			}
			return c.told(begun.ID, begun.Status)
		},
	}
	a.flags(cmd)
	return cmd
}

func (a *app) resumeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "resume RUN",
		Short:   "Go on with a run whose step was attested",
		Long:    "Go on with a run that is waiting, and wait until it waits again or has ended. A step that has succeeded is never executed again.",
		Example: "  runlog-runner resume 5d9b2c7e-2d0e-4d7e-9a49-4c8f6a3f4f5b --by jed",
		Args:    session.OneRun,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.caller(cmd)
			if err != nil {
				return err
			}
			defer c.done()
			var is struct{ Status string }
			if err := c.post("/api/runs/"+url.PathEscape(args[0])+"/resume", map[string]string{"initiated_by": a.by}, &is); err != nil {
				return err
			}
			return c.told(args[0], is.Status)
		},
	}
	a.flags(cmd)
	return cmd
}

func (a *app) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.by, "by", a.Getenv("USER"), "the operator, for the log; also USER")
	cmd.Flags().Lookup("by").DefValue = "" // The help is the same for all users.
	cmd.Flags().StringVar(&a.api, "runner", "http://"+defaultListen, "URL of a runner")
}

// caller calls a runner.
type caller struct {
	*app
	ctx   context.Context
	done  context.CancelFunc
	token func() string // of a call that is made now
}

// caller checks the flags. A call waits for its run, so only a --timeout on the command line bounds
// it.
func (a *app) caller(cmd *cobra.Command) (*caller, error) {
	if a.by == "" {
		return nil, output.UsageError("--by is required, as USER is not set: name the operator, for the log")
	}
	u, err := url.Parse(a.api)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, output.UsageError("--runner is %q: write the URL of a runner, such as http://%s", a.api, defaultListen)
	}
	opts, err := a.ClientOptions(client.Options{})
	if err != nil {
		return nil, err
	}
	if ip := net.ParseIP(u.Hostname()); opts.Token != "" && u.Scheme != "https" && !opts.Insecure && (ip == nil || !ip.IsLoopback()) {
		return nil, output.UsageError("--runner: the token would leave this machine in plain text: write https://, or give --insecure")
	}
	c := &caller{app: a, token: func() string { return opts.Token }}
	if opts.TokenFiles != nil {
		c.token = func() string {
			token, _ := opts.TokenFiles.Current() // The earlier one, if the file is damaged.
			return *token
		}
	}
	if c.ctx, c.done = context.WithCancel(cmd.Context()); cmd.Flags().Changed("timeout") && a.Timeout > 0 {
		c.ctx, c.done = context.WithTimeout(cmd.Context(), a.Timeout)
	}
	return c, nil
}

// told says what has become of a run, and what an operator can do.
func (c *caller) told(runID, status string) error {
	text, says := fmt.Sprintf("run %s is %s", runID, status), map[string]string{"id": runID, "status": status}
	if status == "success" {
		return c.Tell(text, says)
	}
	var run struct {
		Steps []struct {
			StepRunID string `json:"step_run_id"`
			Key       string `json:"step_key"`
			Status    string
			Error     struct{ Code, Message string }
		}
	}
	path := "/api/runs/" + url.PathEscape(runID)
	if err := c.call(http.MethodGet, path, nil, &run); err != nil {
		return errors.Join(c.Tell(text, says), err)
	}
	hint, failed := "", []string(nil)
	for _, s := range run.Steps {
		switch {
		case s.Status == "FAIL":
			if s.Error.Code != "" {
				s.Key += fmt.Sprintf(" (%s: %.200s)", s.Error.Code, s.Error.Message)
			}
			failed = append(failed, s.Key)
		case status == "waiting" && s.Status == "WAITING_FOR_ATTESTATION":
			says["step"], says["attest"] = s.Key, strings.TrimSuffix(c.api, "/")+path+"/steps/"+s.StepRunID+"/attest"
			hint = fmt.Sprintf("step %s waits for its attestation: POST %s", s.Key, says["attest"])
		}
	}
	if status == "waiting" && hint == "" {
		hint = "no step waits for an attestation: runlog-runner resume " + runID + " goes on"
	}
	if hint != "" {
		fmt.Fprintln(c.Stderr, output.OneLine(hint))
	}
	if err := c.Tell(text, says); err != nil || status != "error" {
		return err
	}
	why := ""
	if len(failed) > 0 {
		why = ", and these of its steps have failed: " + strings.Join(failed[:min(len(failed), shownSteps)], ", ")
	}
	return output.Errorf(output.ExitRunNotOK, "run %q has not succeeded%s; \"runlog snapshot %s\" shows why", runID, why, runID)
}

// shownSteps is how many steps that have failed a message has at most.
const shownSteps = 5

// post posts a body, and decodes the answer.
func (c *caller) post(path string, in, out any) error {
	body, ok := in.([]byte)
	if !ok {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	return c.call(http.MethodPost, path, body, out)
}

func (c *caller) call(method, path string, body []byte, out any) error {
	req, err := http.NewRequestWithContext(c.ctx, method, strings.TrimSuffix(c.api, "/")+path, bytes.NewReader(body))
	if err != nil {
		return output.UsageError("--runner: %v", err)
	}
	req.Header.Set("Content-Type", "application/json")
	if token := c.token(); token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	status, text, err := exchange(req)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return output.Errorf(output.ExitTimeout, "runner: no answer within %v; a run that has begun continues", c.Timeout)
	case errors.Is(err, context.Canceled):
		return err // By a signal: it says nothing about the runner.
	case err != nil:
		return output.Errorf(output.ExitUnavailable, "runner: %v; start one with runlog-runner serve, or name it with --runner", err)
	case status >= http.StatusMultipleChoices:
		return c.refused(status, text)
	}
	if err := json.Unmarshal(text, out); err != nil {
		return c.foreign(status)
	}
	return nil
}

// exchange sends a request, and returns the status and the body of its answer.
func exchange(req *http.Request) (status int, text []byte, err error) {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	if text, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer)); err != nil {
		err = fmt.Errorf("read the answer: %w", err)
	}
	return resp.StatusCode, text, err
}

// foreign is the error of an answer that no runner gives.
func (c *caller) foreign(status int) error {
	return output.Errorf(output.ExitUnavailable, "what answers at %s is no runner: it says %d %s; name a runner with --runner", c.api, status, http.StatusText(status))
}

// refused returns the error of an answer, with all faults.
func (c *caller) refused(status int, text []byte) error {
	var answer struct {
		Error  string
		Faults []struct{ Path, Message string }
	}
	if json.Unmarshal(text, &answer) != nil || answer.Error == "" {
		return c.foreign(status)
	}
	message := answer.Error
	if len(answer.Faults) > 0 {
		var faults []string
		for _, f := range answer.Faults {
			faults = append(faults, strings.TrimSpace(f.Path+" "+f.Message))
		}
		message = "the body is refused: " + strings.Join(faults, "; ")
	}
	code := output.ExitFailed
	switch status {
	case http.StatusUnprocessableEntity, http.StatusConflict:
		code = output.ExitRefused
	case http.StatusUnauthorized, http.StatusForbidden:
		code = output.ExitForbidden
	case http.StatusNotFound:
		code = output.ExitNotFound
	case http.StatusServiceUnavailable:
		code = output.ExitUnavailable
	}
	return output.Errorf(code, "runner: %s", message)
}

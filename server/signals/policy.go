package signals

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
	"strings"
	"time"

	"runlog/projector/run"
)

const (
	// maxPolicyCalls bounds the calls of the policy at the same time.
	maxPolicyCalls = 64
	// maxPolicyAnswer bounds an answer of the policy, in bytes.
	maxPolicyAnswer = 64 << 10
	// maxPolicyReason bounds its reason in the decision, in bytes.
	maxPolicyReason = 1 << 10
)

// policy is an external policy, asked over HTTP (SIG-3). A call that fails allows nothing.
type policy struct {
	url     string
	timeout time.Duration
	client  *http.Client
	slots   chan struct{}
}

// verdict is the answer of the policy.
type verdict struct {
	allow  bool
	reason string
}

// question is the body of a call. Its fields are part of the API (docs/signals.md).
type question struct {
	RunID      string          `json:"runId"`
	TenantID   string          `json:"tenantId"`
	SignalID   string          `json:"signalId"`
	SignalType string          `json:"signalType"`
	StepID     string          `json:"stepId,omitempty"`
	Reason     string          `json:"reason,omitempty"`
	Parameters json.RawMessage `json:"parameters,omitempty"`
	Caller     questionCaller  `json:"caller"`
	RunStatus  string          `json:"runStatus"`
}

type questionCaller struct {
	Name  string   `json:"name"`
	Roles []string `json:"roles"`
}

// CheckPolicyURL says why an address cannot be that of a policy.
func CheckPolicyURL(address string) error {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return err
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return errors.New("is no address such as https://policy.example.com/signals")
	default:
		return nil
	}
}

func newPolicy(address string, timeout time.Duration, dial func(context.Context, string, string) (net.Conn, error)) *policy {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = maxPolicyCalls
	if dial != nil {
		t.DialContext = dial
	}
	return &policy{
		url: address, timeout: timeout, slots: make(chan struct{}, maxPolicyCalls),
		client: &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
}

// ask asks about one signal. An error says that the policy has not decided.
func (p *policy) ask(ctx context.Context, sig *signal, status run.Status) (*verdict, error) {
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	late := func(err error) error {
		if errors.Is(err, context.DeadlineExceeded) && caller.Err() == nil {
			return fmt.Errorf("no answer within %v", p.timeout)
		}
		return err
	}
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%d other calls of the policy take too long", maxPolicyCalls)
	}
	body, err := json.Marshal(question{
		RunID: sig.runID, TenantID: sig.tenantID, SignalID: sig.id, SignalType: sig.signalType, StepID: sig.stepID,
		Reason: sig.reason, Parameters: sig.parameters, RunStatus: status.String(),
		Caller: questionCaller{sig.callerName, roleNames(sig)},
	})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, late(withoutURL(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it has answered with HTTP %d instead of 200", resp.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxPolicyAnswer+1))
	switch {
	case err != nil:
		return nil, late(fmt.Errorf("read its answer: %w", err))
	case len(text) > maxPolicyAnswer:
		return nil, fmt.Errorf("its answer is longer than %d bytes", maxPolicyAnswer)
	}
	return parseVerdict(text)
}

// withoutURL hides the address of the policy from the caller of the signal: it may have a secret.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

func roleNames(sig *signal) []string {
	names := []string{}
	if sig.caller != nil {
		for _, r := range sig.caller.Roles.List() {
			names = append(names, strings.ToLower(r.String()))
		}
	}
	return names
}

// parseVerdict reads an answer. One that does not say whether the signal is allowed is none.
func parseVerdict(text []byte) (*verdict, error) {
	var answer struct {
		Allow  *bool  `json:"allow"`
		Reason string `json:"reason"`
	}
	if err := json.Unmarshal(text, &answer); err != nil || answer.Allow == nil {
		return nil, errors.New(`its answer is no JSON object such as {"allow": true}`)
	}
	if len(answer.Reason) > maxPolicyReason {
		answer.Reason = strings.ToValidUTF8(answer.Reason[:maxPolicyReason], "")
	}
	return &verdict{*answer.Allow, answer.Reason}, nil
}

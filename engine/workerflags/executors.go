package workerflags

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"strings"

	"runlog/client/transport/publicaddress"
	"runlog/engine/blob"
	"runlog/engine/executor"
	"runlog/engine/executor/command"
	"runlog/engine/executor/httpcall"
	"runlog/engine/executor/llm"
	"runlog/engine/secret"
)

// registry returns the executors of task steps.
func (f *Flags) registry(o Options, own secret.Provider) (*executor.Registry, error) {
	names := f.executors
	if len(names) == 0 {
		if o.Trusting {
			names = []string{"command", "http"}
		}
		if f.llm != (model{}) {
			names = append(names, "llm")
		}
	}
	networks, err := f.networks()
	if err != nil {
		return nil, err
	}
	all := map[string]executor.Executor{"noop": executor.Noop{}}
	for _, name := range names {
		switch name {
		case "noop":
		case "command":
			if err := errors.Join(command.Conceal(), command.RemoveLeft("")); err != nil {
				return nil, err
			}
			all[name] = command.New(command.Options{PassEnv: f.commandEnv})
		case "http":
			all[name] = httpcall.New(httpcall.NewClient(httpcall.ClientOptions{Control: publicaddress.Control(networks...)}))
		case "llm":
			if all[name], err = f.llm.executor(httpcall.NewClient(httpcall.ClientOptions{}), own); err != nil {
				return nil, err
			}
		default:
			return nil, fault("--executors has %q: name noop, command, http and llm", name)
		}
	}
	if all["llm"] == nil && f.llm != (model{}) {
		return nil, fault("--llm-url, --llm-model, --llm-key and --llm-policy need llm in --executors")
	}
	if all["command"] == nil && len(f.commandEnv) > 0 {
		return nil, fault("--command-env needs command in --executors")
	}
	if all["http"] == nil && len(networks) > 0 {
		return nil, fault("--http-networks needs http in --executors")
	}
	return executor.NewRegistry(executor.Options{}, all)
}

// networks returns those beside the public ones that http steps may reach.
func (f *Flags) networks() (all []netip.Prefix, _ error) {
	for _, text := range f.httpNetworks {
		n, err := netip.ParsePrefix(text)
		if err != nil || n != n.Masked() {
			return nil, fault("--http-networks has %q, which is no network: write one such as 10.1.0.0/16, or 10.1.2.3/32 for one address", text)
		}
		all = append(all, n)
	}
	return all, nil
}

func (m model) executor(calls *httpcall.Client, own secret.Provider) (executor.Executor, error) {
	if m.url == "" {
		return nil, fault("llm steps, --llm-model, --llm-key and --llm-policy need --llm-url, the address of the language model")
	}
	if why := blob.CheckURI(m.url); why != "" || !strings.HasPrefix(m.url, "https://") && !strings.HasPrefix(m.url, "http://") {
		return nil, fault("--llm-url is no address: write https://HOST/PATH, without credentials; --llm-key names the key")
	}
	if m.key != "" {
		// A key that is missing now would fail each step.
		if _, err := own.Resolve(context.Background(), []string{m.key}, secret.Scope{}); err != nil && !secret.Retryable(err) {
			return nil, fault("--llm-key is the reference of a secret, such as env:LLM_KEY, and not the key: %v", err)
		}
	}
	rules := llm.RulesOptions{Secrets: true}
	if m.policy != "" {
		text, err := os.ReadFile(m.policy)
		if err != nil {
			return nil, fault("--llm-policy: %v", err)
		}
		rules = llm.RulesOptions{}
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&rules); err != nil {
			return nil, fault("--llm-policy %s: %v: write an object of maxChars, forbidden, jsonSchema and secrets", m.policy, err)
		}
	}
	policy, err := llm.NewRules(rules)
	if err != nil {
		return nil, fault("--llm-policy %s: %v", m.policy, err)
	}
	return llm.New(llm.Options{Client: calls, BaseURL: m.url, Model: m.name, APIKey: m.key, KeyProvider: own, Policy: policy})
}

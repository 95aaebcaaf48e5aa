package runner

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"runlog/cmd/runlog/internal/output"
	"runlog/engine"
	"runlog/engine/blob"
	"runlog/engine/executor"
	"runlog/engine/executor/command"
	"runlog/engine/executor/httpcall"
	"runlog/engine/executor/llm"
	"runlog/engine/secret"
	"runlog/publicaddress"
)

// secretPrefix stands before the names of the variables that plans may name. A plan must not send
// the credentials of the runner elsewhere.
const secretPrefix = "SECRET_"

// model is a language model.
type model struct{ url, name, key, policy string }

// stores opens the store of manifests, and those of plans.
func (v *serving) stores() error {
	var allow []string
	for i, text := range append([]string{v.store}, v.plans...) {
		flag := "plans"
		if i == 0 {
			flag = "store"
		}
		uri, err := storeURI(flag, text)
		if err != nil {
			return err
		}
		allow = append(allow, uri)
	}
	v.o.Base = allow[0]
	if scheme, _, _ := strings.Cut(v.o.Base, "://"); scheme == "http" || scheme == "https" {
		return output.UsageError("--store %s cannot be written: name a directory, or s3://BUCKET/PREFIX", blob.Shown(v.o.Base))
	}
	blobs, err := blob.New(blob.Options{Allow: allow})
	if err != nil {
		return output.UsageError("--store, --plans: %v", err)
	}
	for _, uri := range allow {
		known := false
		for _, scheme := range blobs.Schemes() {
			known = known || strings.HasPrefix(uri, scheme+"://")
		}
		if !known {
			return output.UsageError("--store, --plans: %s: name a directory, or a URI of %s", blob.Shown(uri), strings.Join(blobs.Schemes(), ", "))
		}
	}
	if v.approvedOnly {
		if len(v.plans) == 0 {
			return output.UsageError("--approved-plans-only needs --plans, where the approved plans are")
		}
		if v.o.Approved, err = blob.New(blob.Options{Allow: allow[1:]}); err != nil {
			return output.UsageError("--plans: %v", err)
		}
	}
	if v.o.Blobs = blobs; !strings.Contains(v.store, "://") {
		if err := os.MkdirAll(v.store, 0o700); err != nil {
			return output.UsageError("--store: %v; name a directory that this user can write", err)
		}
	}
	return nil
}

// likeScheme is what a URI begins with, and hardly ever the name of a directory.
var likeScheme = regexp.MustCompile(`^[a-z][a-z0-9+.-]*:`)

// storeURI returns the URI of a store, which a flag has as a URI or as a directory. The directory
// of --store is made later.
func storeURI(flag, text string) (string, error) {
	if strings.Contains(text, "://") {
		return text, nil
	}
	if likeScheme.MatchString(text) {
		return "", output.UsageError("--%s %s is neither a URI, such as s3://BUCKET/PREFIX, nor a directory: write ./%s if it is one", flag, text, text)
	}
	if info, err := os.Stat(text); flag == "plans" && (err != nil || !info.IsDir()) {
		return "", output.UsageError("--plans %s is no directory that can be read: name one, or a URI", text)
	}
	uri, err := blob.FileURI(text)
	if err != nil {
		return "", output.UsageError("--%s: %v", flag, err)
	}
	return uri, nil
}

// capabilitiesFile has what the runners of a store can do, for planners.
const capabilitiesFile = "adapterCapabilities.json"

// publish writes what the runner can do into its store. A store that cannot be written is found
// here, and not by the first run.
func (v *serving) publish(ctx context.Context, c engine.Capabilities) error {
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	err = v.o.Blobs.Put(ctx, strings.TrimSuffix(v.o.Base, "/")+"/"+capabilitiesFile, bytes.NewReader(text), int64(len(text)))
	if err == nil {
		return nil
	}
	code, remedy := output.ExitFailed, "name a directory that this user can write"
	if strings.HasPrefix(v.o.Base, "s3://") {
		remedy = "check the bucket, AWS_ENDPOINT_URL, AWS_REGION and the credentials, which need s3:GetObject, s3:PutObject and s3:ListBucket"
	}
	if e, ok := errors.AsType[*blob.Error](err); ok {
		switch e.Kind {
		case blob.Transient:
			code = output.ExitUnavailable
		case blob.Denied:
			code = output.ExitForbidden
		case blob.Invalid, blob.NotFound, blob.Unsupported:
			code = output.ExitUsage
		}
	}
	return output.Errorf(code, "--store cannot be written: %v; %s", err, remedy)
}

// secrets returns the provider of the secrets of steps, and that of the operator's own ones.
func (a *app) secrets(v *serving) (steps, own secret.Mux, err error) {
	lookup := func(name string) (string, bool) {
		value := a.Getenv(name)
		return value, value != ""
	}
	steps = secret.Mux{"env": secret.Env{Prefix: secretPrefix, Lookup: lookup}}
	own = secret.Mux{"env": secret.Env{Lookup: lookup}}
	if v.secretsDir != "" {
		if info, err := os.Stat(v.secretsDir); err != nil || !info.IsDir() {
			return nil, nil, output.UsageError("--secrets-dir %s is no directory that can be read: name one", v.secretsDir)
		}
		steps["file"] = secret.File{Dir: v.secretsDir}
		own["file"] = steps["file"]
	}
	if address := a.Getenv("VAULT_ADDR"); address != "" {
		vault, err := a.vault(address)
		if err != nil {
			return nil, nil, output.UsageError("VAULT_ADDR: %v", err)
		}
		steps["vault"], own["vault"] = vault, vault
	}
	return steps, own, nil
}

func (a *app) vault(address string) (*secret.Vault, error) {
	o := secret.VaultOptions{Address: address, Namespace: a.Getenv("VAULT_NAMESPACE"), Token: func() string { return a.Getenv("VAULT_TOKEN") }}
	if a.Getenv("VAULT_TOKEN") == "" {
		home := a.Getenv("HOME")
		if home == "" {
			return nil, errors.New("there is no token: set VAULT_TOKEN, or HOME for the file .vault-token")
		}
		o.TokenFile = filepath.Join(home, ".vault-token")
	}
	if file := a.Getenv("VAULT_CACERT"); file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		o.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
		if !o.TLS.RootCAs.AppendCertsFromPEM(text) {
			return nil, errors.New("VAULT_CACERT has no certificate: name a PEM file")
		}
	}
	return secret.NewVault(o)
}

// executors returns the executors of task steps.
func (v *serving) executors(own secret.Provider) (*executor.Registry, error) {
	names := v.executing
	if len(names) == 0 {
		if v.trusting {
			names = []string{"command", "http"}
		}
		if v.llm != (model{}) {
			names = append(names, "llm")
		}
	}
	networks, err := v.networks()
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
			all[name] = command.New(command.Options{PassEnv: v.commandEnv})
		case "http":
			all[name] = httpcall.New(httpcall.NewClient(httpcall.ClientOptions{Control: publicaddress.Control(networks...)}))
		case "llm":
			if all[name], err = v.llm.executor(httpcall.NewClient(httpcall.ClientOptions{}), own); err != nil {
				return nil, err
			}
		default:
			return nil, output.UsageError("--executors has %q: name noop, command, http and llm", name)
		}
	}
	if all["llm"] == nil && v.llm != (model{}) {
		return nil, output.UsageError("--llm-url, --llm-model, --llm-key and --llm-policy need llm in --executors")
	}
	if all["command"] == nil && len(v.commandEnv) > 0 {
		return nil, output.UsageError("--command-env needs command in --executors")
	}
	if all["http"] == nil && len(networks) > 0 {
		return nil, output.UsageError("--http-networks needs http in --executors")
	}
	if all[v.o.DefaultExecutor] == nil {
		return nil, output.UsageError("--default-executor %q is not among the executors of this runner: name it in --executors", v.o.DefaultExecutor)
	}
	return executor.NewRegistry(executor.Options{}, all)
}

// networks returns those beside the public ones that http steps may reach.
func (v *serving) networks() (all []netip.Prefix, _ error) {
	for _, text := range v.httpNetworks {
		n, err := netip.ParsePrefix(text)
		if err != nil || n != n.Masked() {
			return nil, output.UsageError("--http-networks has %q, which is no network: write one such as 10.1.0.0/16, or 10.1.2.3/32 for one address", text)
		}
		all = append(all, n)
	}
	return all, nil
}

func (m model) executor(calls *httpcall.Client, own secret.Provider) (executor.Executor, error) {
	if m.url == "" {
		return nil, output.UsageError("llm steps, --llm-model, --llm-key and --llm-policy need --llm-url, the address of the language model")
	}
	if why := blob.CheckURI(m.url); why != "" || !strings.HasPrefix(m.url, "https://") && !strings.HasPrefix(m.url, "http://") {
		return nil, output.UsageError("--llm-url is no address: write https://HOST/PATH, without credentials; --llm-key names the key")
	}
	if m.key != "" {
		// A key that is missing now would fail each step.
		if _, err := own.Resolve(context.Background(), []string{m.key}, secret.Scope{}); err != nil && !secret.Retryable(err) {
			return nil, output.UsageError("--llm-key is the reference of a secret, such as env:LLM_KEY, and not the key: %v", err)
		}
	}
	rules := llm.RulesOptions{Secrets: true}
	if m.policy != "" {
		text, err := os.ReadFile(m.policy)
		if err != nil {
			return nil, output.UsageError("--llm-policy: %v", err)
		}
		rules = llm.RulesOptions{}
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&rules); err != nil {
			return nil, output.UsageError("--llm-policy %s: %v: write an object of maxChars, forbidden, jsonSchema and secrets", m.policy, err)
		}
	}
	policy, err := llm.NewRules(rules)
	if err != nil {
		return nil, output.UsageError("--llm-policy %s: %v", m.policy, err)
	}
	return llm.New(llm.Options{Client: calls, BaseURL: m.url, Model: m.name, APIKey: m.key, KeyProvider: own, Policy: policy})
}

package workerflags

import (
	"flag"
	"fmt"
	"log/slog"
	"strings"

	"runlog/engine/executor"
	"runlog/engine/secret"
)

// Flags are the values of the flags.
type Flags struct {
	executors    stringSliceValue // their names; empty: the default
	commandEnv   stringSliceValue // the variables of the process that commands get
	httpNetworks stringSliceValue // those that http steps reach, beside the public ones
	secretsDir   string
	secretEnv    stringSliceValue // prefixes of variables by tenant: TENANT=PREFIX
	llm          model
}

// model is a language model.
type model struct{ url, name, key, policy string }

// stringSliceValue is a flag that may be repeated, and that takes several values with commas
// between them.
type stringSliceValue []string

func (l *stringSliceValue) String() string { return strings.Join(*l, ",") }

// Set adds values.
func (l *stringSliceValue) Set(text string) error {
	if text != "" {
		*l = append(*l, strings.Split(text, ",")...)
	}
	return nil
}

// Register adds the flags to a set.
func (f *Flags) Register(set *flag.FlagSet) {
	set.StringVar(&f.secretsDir, "secrets-dir", "", "directory of the secrets of steps, in TENANT/ENVIRONMENT (default none)")
	set.Var(&f.secretEnv, "secret-env", "prefixes of the variables with the secrets of tenants, such as acme=SECRET_ACME_ (default: such a one for --tenant)")
	set.Var(&f.executors, "executors", "executors beside noop: command, http, llm (default none; command and http if only users of this machine request runs)")
	set.Var(&f.commandEnv, "command-env", "variables of this process that commands get, such as PATH (default none)")
	set.Var(&f.httpNetworks, "http-networks", "networks that http steps reach beside the public ones, such as 10.1.0.0/16 (default none)")
	set.StringVar(&f.llm.url, "llm-url", "", "base URL of a language model, such as https://llm.example/v1, which takes POST /chat/completions (default none)")
	set.StringVar(&f.llm.name, "llm-model", "", "model of llm steps that name none")
	set.StringVar(&f.llm.key, "llm-key", "", "reference of the key of the language model, such as env:LLM_KEY (default: it wants none)")
	set.StringVar(&f.llm.policy, "llm-policy", "", "JSON file of the rules for all answers: maxChars, forbidden, jsonSchema, secrets (default: no answer may have what looks like a secret)")
}

// Options of Build. Getenv is required.
type Options struct {
	// Getenv returns a variable of the process, such as os.Getenv.
	Getenv func(name string) string
	// Tenant of the runs, and Environment. Without a tenant they are of any, and --secret-env alone
	// says which ones have variables.
	Tenant, Environment string
	// Logger gets the faults of files that have changed. Nil: nothing does.
	Logger *slog.Logger
	// Trusting: only users of this machine request runs. Without --executors, they have command and
	// http too.
	Trusting bool
}

// Worker is what steps are executed with.
type Worker struct {
	Executors *executor.Registry
	Secrets   secret.Provider
}

// Error is a fault of a flag or of a variable, with its remedy.
type Error struct{ text string }

// Error names the flag.
func (e *Error) Error() string { return e.text }

func fault(format string, args ...any) error { return &Error{fmt.Sprintf(format, args...)} }

// Build returns what the flags say.
func (f *Flags) Build(o Options) (Worker, error) {
	steps, own, err := f.secrets(o)
	if err != nil {
		return Worker{}, err
	}
	registry, err := f.registry(o, own)
	return Worker{registry, steps}, err
}

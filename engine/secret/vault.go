package secret

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"runlog/client/transport/certfile"
)

const (
	maxAnswer      = 1 << 20 // bytes of one secret of Vault with all its fields
	maxToken       = 8 << 10
	maxRedirects   = 3
	defaultTimeout = 10 * time.Second
)

// VaultOptions say where the secrets of a Vault are.
type VaultOptions struct {
	// Address is the server, such as https://vault.example:8200. Plain HTTP is for loopback
	// addresses, such as that of an agent, and with AllowHTTP for others.
	Address   string
	AllowHTTP bool
	// Namespace is sent as X-Vault-Namespace, unless it is empty.
	Namespace string
	// TokenFile has the token. It is read for each request, so a rotation needs no restart.
	TokenFile string
	// Token returns the token if there is no TokenFile, such as from an environment variable.
	Token func() string
	// Own: the secrets are those of the worker itself. PATH is then that of the reference, instead
	// of TENANT/ENVIRONMENT/PATH. No plan must reach them.
	Own bool
	// Timeout bounds each request, by default 10 s.
	Timeout time.Duration
	// TLSFiles have the certificate authorities: each request trusts those that are in the files
	// then. Nil: those of the system.
	TLSFiles *certfile.Files[tls.Config]
	// Logger gets the fault of files that have changed. Nil: nothing does.
	Logger *slog.Logger
}

// Vault resolves vault:MOUNT/PATH#FIELD with the key-value engine, version 2, of a server that
// speaks the HTTP API of HashiCorp Vault. It reads the field at TENANT/ENVIRONMENT/PATH, whose
// names are encoded as those of File.
type Vault struct {
	o    VaultOptions
	base string
	at   *url.URL

	mu struct {
		sync.Mutex
		client *http.Client
		tls    *tls.Config // that of the client
	}
}

// NewVault checks the options. It does not connect.
func NewVault(o VaultOptions) (*Vault, error) {
	u, err := url.Parse(o.Address)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return nil, errors.New("secret: the address of Vault is no URL: send one such as https://vault.example:8200")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("secret: the address of Vault has a user, a query or a fragment: leave it out")
	case u.Scheme == "http" && !o.AllowHTTP && !isLoopback(u.Hostname()):
		return nil, errors.New("secret: the address of Vault has no TLS: use https, or set AllowHTTP")
	case o.TokenFile == "" && o.Token == nil:
		return nil, errors.New("secret: there is no token of Vault: set TokenFile or Token")
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Vault{o: o, base: strings.TrimSuffix(u.String(), "/"), at: u}, nil
}

// client returns the client of the authorities that are in the files now. Connections that trusted
// others serve no more requests.
func (v *Vault) client() *http.Client {
	var config *tls.Config
	if v.o.TLSFiles != nil {
		config = v.o.TLSFiles.Kept(v.o.Logger)
	}
	v.mu.Lock()
	before := v.mu.client
	if before != nil && v.mu.tls == config {
		v.mu.Unlock()
		return before
	}
	v.mu.client, v.mu.tls = v.newClient(config), config
	now := v.mu.client
	v.mu.Unlock()
	if before != nil {
		before.CloseIdleConnections()
	}
	return now
}

func (v *Vault) newClient(config *tls.Config) *http.Client {
	return &http.Client{
		Timeout: v.o.Timeout,
		Transport: &http.Transport{
			TLSClientConfig: config.Clone(), Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
			MaxResponseHeaderBytes: 64 << 10, MaxIdleConns: 4, IdleConnTimeout: time.Minute,
		},
		// The client would send the token along.
		CheckRedirect: func(to *http.Request, via []*http.Request) error {
			if to.URL.Host != v.at.Host || to.URL.Scheme != v.at.Scheme || len(via) > maxRedirects {
				return errRedirect
			}
			return nil
		},
	}
}

var errRedirect = errors.New("it redirects to another server, or too often")

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Close closes idle connections.
func (v *Vault) Close() {
	v.mu.Lock()
	client := v.mu.client
	v.mu.Unlock()
	if client != nil {
		client.CloseIdleConnections()
	}
}

// Resolve reads each path once.
func (v *Vault) Resolve(ctx context.Context, refs []string, scope Scope) (*Set, error) {
	fields := map[string]map[string]json.RawMessage{}
	return each(ctx, refs, func(ref, name string) (string, error) {
		where, field, ok := strings.Cut(name, "#")
		mount, path, below := strings.Cut(where, "/")
		if !ok || !below || !isElement(mount) || !isPath(path) || field == "" {
			return "", &Error{ref, ErrReference, "write vault:MOUNT/PATH#FIELD, the mount and the path of letters, digits, \".\", \"_\" and \"-\""}
		}
		if _, known := fields[where]; !known {
			read, err := v.read(ctx, ref, mount, path, scope)
			if err != nil {
				return "", err
			}
			fields[where] = read
		}
		raw, ok := fields[where][field]
		if !ok {
			return "", notFound(ref, "the secret has no such field")
		}
		var value string
		if json.Unmarshal(raw, &value) != nil {
			return "", &Error{ref, ErrValue, "the field is no text: store it as a text"}
		}
		return value, nil
	})
}

// read returns the fields of one secret.
func (v *Vault) read(ctx context.Context, ref, mount, path string, scope Scope) (map[string]json.RawMessage, error) {
	if !v.o.Own {
		dir, err := scope.below(ref)
		if err != nil {
			return nil, err
		}
		// An encoded name is sent encoded once more: the server has it as it is on disk.
		path = strings.ReplaceAll(dir, "%", "%25") + path
	}
	token, err := v.token()
	if err != nil {
		return nil, &Error{ref, ErrUnavailable, err.Error()}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, v.base+"/v1/"+mount+"/data/"+path, nil)
	if err != nil {
		return nil, &Error{ref, ErrReference, "it makes no URL"}
	}
	request.Header.Set("X-Vault-Token", token)
	request.Header.Set("X-Vault-Request", "true")
	if v.o.Namespace != "" {
		request.Header.Set("X-Vault-Namespace", v.o.Namespace)
	}
	response, err := v.client().Do(request)
	if err != nil {
		return nil, unreachable(ctx, ref, err)
	}
	defer response.Body.Close()
	if err := refusal(ref, response.StatusCode); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return nil, unreachable(ctx, ref, err)
	}
	return parseAnswer(ref, text)
}

// token reads the token.
func (v *Vault) token() (string, error) {
	token := ""
	if v.o.TokenFile != "" {
		file, err := os.Open(v.o.TokenFile)
		if err != nil {
			return "", fmt.Errorf("cannot read the token of Vault: %w: check TokenFile", cause(err))
		}
		defer file.Close()
		text, err := io.ReadAll(io.LimitReader(file, maxToken+1))
		if err != nil {
			return "", fmt.Errorf("cannot read the token of Vault: %w: check TokenFile", cause(err))
		}
		token = string(text)
	} else {
		token = v.o.Token()
	}
	token = strings.TrimSpace(token)
	if token == "" || len(token) > maxToken || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", errors.New("the token of Vault is empty or malformed: replace it")
	}
	return token, nil
}

// unreachable leaves the URL out of an error of the HTTP client.
func unreachable(ctx context.Context, ref string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("secret %s: cannot resolve: %w", ref, context.Cause(ctx))
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	reason := ErrUnavailable
	if errors.Is(err, errRedirect) {
		reason = ErrDenied
	}
	return &Error{ref, reason, fmt.Sprintf("cannot reach Vault: %v", err)}
}

// refusal returns the error of a status. The body stays unread: it may repeat what was sent.
func refusal(ref string, status int) error {
	switch {
	case status == http.StatusOK:
		return nil
	case status == http.StatusNotFound:
		return notFound(ref, "Vault has none at this path, or its last version is deleted")
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return &Error{ref, ErrDenied, fmt.Sprintf("Vault answers %d: check the token and its policy", status)}
	case status == http.StatusTooManyRequests, status >= 500, status == 412, status == 472, status == 473:
		return &Error{ref, ErrUnavailable, fmt.Sprintf("Vault answers %d", status)}
	default:
		return &Error{ref, ErrReference, fmt.Sprintf("Vault answers %d: check the mount and its version", status)}
	}
}

func parseAnswer(ref string, text []byte) (map[string]json.RawMessage, error) {
	if len(text) > maxAnswer {
		return nil, &Error{ref, ErrValue, fmt.Sprintf("the answer of Vault has more than %d bytes", maxAnswer)}
	}
	var answer struct {
		Data struct {
			Data map[string]json.RawMessage `json:"data"`
		} `json:"data"`
	}
	// An error of encoding/json may repeat parts of the text.
	if json.Unmarshal(text, &answer) != nil || answer.Data.Data == nil {
		return nil, &Error{ref, ErrValue, "the answer of Vault is not that of a key-value engine of version 2"}
	}
	return answer.Data.Data, nil
}

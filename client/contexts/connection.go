package contexts

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"strings"

	"runlog/client/transport/certfile"
)

// Connection says which nodes to call, how to trust them, and with which credentials. Empty members
// say nothing.
type Connection struct {
	// Server is a target of client.Dial.
	Server string `json:"server,omitempty"`
	TLS    bool   `json:"tls,omitempty"`
	// CACert, Cert, CertKey and TokenFile are paths.
	CACert    string `json:"cacert,omitempty"`
	Cert      string `json:"cert,omitempty"`
	CertKey   string `json:"certKey,omitempty"`
	Token     string `json:"token,omitempty"`
	TokenFile string `json:"tokenFile,omitempty"`
	// Insecure allows a token to leave this machine in plain text.
	Insecure bool `json:"insecure,omitempty"`
}

// ReadToken returns the token, which may be in a file; empty: none.
func (c *Connection) ReadToken() (string, error) {
	if c.TokenFile == "" {
		return c.Token, nil
	}
	token, err := ReadSecret(c.TokenFile)
	if err != nil {
		return "", fmt.Errorf("token-file%w", err)
	}
	if token == "" {
		return "", fmt.Errorf("token-file %s: it is empty; write the token into it", c.TokenFile)
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("token-file %s: it has a blank, a second line or another character that no token has; write the token alone into it", c.TokenFile)
	}
	return token, nil
}

// TokenFiles reads the file of the token, for client.Options. It returns nil if there is none, or
// if it can be read once only, such as a pipe: ReadToken then returns the token.
func (c *Connection) TokenFiles() (*certfile.Files[string], error) {
	if c.TokenFile == "" {
		return nil, nil
	}
	if info, err := os.Stat(c.TokenFile); err == nil && !info.Mode().IsRegular() {
		return nil, nil
	}
	if _, err := c.ReadToken(); err != nil { // It names the flag of a file that is missing.
		return nil, err
	}
	own := *c
	return certfile.Load(certfile.Options[string]{Paths: []string{c.TokenFile}, What: "the tokens of --token-file", Read: func(*string) (*string, error) {
		token, err := own.ReadToken()
		return &token, err
	}})
}

// TLSFiles reads the files of the connection, for client.Options. It returns nil if nothing asks
// for TLS; secure: the addresses do.
func (c *Connection) TLSFiles(secure bool) (*certfile.Files[tls.Config], error) {
	if !secure && !c.TLS && c.CACert == "" && c.Cert == "" && c.CertKey == "" {
		return nil, nil
	}
	if _, err := c.read(); err != nil { // It names the flag of a file that is missing.
		return nil, err
	}
	var paths []string
	for _, path := range []string{c.CACert, c.Cert, c.CertKey} {
		if path != "" {
			paths = append(paths, path)
		}
	}
	return certfile.Load(certfile.Options[tls.Config]{Paths: paths, Read: func(*tls.Config) (*tls.Config, error) { return c.read() }})
}

// read reads the files of a connection with TLS.
func (c *Connection) read() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS13}
	if c.CACert != "" {
		text, err := os.ReadFile(c.CACert)
		if err != nil {
			return nil, fmt.Errorf("cacert: %w; name a PEM file that this user can read", err)
		}
		if config.RootCAs, err = certfile.Authorities(text); err != nil {
			return nil, fmt.Errorf("cacert %s %w", c.CACert, err)
		}
	}
	switch {
	case c.Cert != "":
		key := c.CertKey
		if key == "" {
			key = c.Cert
		}
		own, err := tls.LoadX509KeyPair(c.Cert, key)
		if err != nil {
			return nil, fmt.Errorf("cert %s: %w; name PEM files of a certificate and its key", c.Cert, err)
		}
		config.Certificates = []tls.Certificate{own}
	case c.CertKey != "":
		return nil, errors.New("cert-key needs cert")
	}
	return config, nil
}

// Package address parses the addresses of nodes, as users write them.
package address

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// DefaultPort is where a node serves gRPC, if the caller names no port.
const DefaultPort = 7410

// List splits a target of client.Dial into its addresses, in their final form and each once.
func List(target string) ([]string, error) {
	var list []string
	seen := make(map[string]bool)
	for text := range strings.SplitSeq(target, ",") {
		address, _, err := Parse(text, DefaultPort)
		if err != nil {
			return nil, err
		}
		if !seen[address] {
			seen[address] = true
			list = append(list, address)
		}
	}
	return list, nil
}

// Of returns the host:port that a text means: a host, host:port, or http:// and one of them.
// port is the one that a text without a port means. A target of gRPC with another scheme, such as
// dns:///host:port or unix:///path, stays as it is.
//
// It is for a listener without TLS: https:// is refused.
func Of(text string, port int) (string, error) {
	address, scheme, err := Parse(text, port)
	if err == nil && scheme == "https" {
		return "", fault(text, "this listener does not speak TLS; leave https:// out")
	}
	return address, err
}

// Parse returns the host:port that a text means, and its scheme: https, http or none.
func Parse(text string, port int) (address, scheme string, err error) {
	text = strings.TrimSpace(text)
	rest, scheme, err := cutScheme(text)
	if err != nil || rest == "" {
		return text, scheme, err
	}
	address, err = hostPort(text, rest, port)
	return address, scheme, err
}

// hostPort returns the host:port of rest, which is text without its scheme.
func hostPort(text, rest string, port int) (string, error) {
	host, number := rest, ""
	if ip, err := netip.ParseAddr(strings.Trim(rest, "[]")); err == nil {
		host = ip.String()
	} else if strings.ContainsAny(rest, ":[]") {
		if host, number, err = net.SplitHostPort(rest); err != nil || number == "" {
			return "", fault(text, "it has no port after the colon")
		}
	}
	if number == "" {
		number = strconv.Itoa(port)
	}
	if n, err := strconv.ParseUint(number, 10, 16); err != nil || n == 0 {
		return "", fault(text, fmt.Sprintf("%q is not a port from 1 to 65535", number))
	}
	if host == "" {
		return "", fault(text, "it has no host")
	}
	if strings.ContainsAny(host, " \t@/?#") {
		return "", fault(text, fmt.Sprintf("%q is no host", host))
	}
	return net.JoinHostPort(host, number), nil
}

// cutScheme cuts http:// or https:// off. It returns an empty rest for another scheme of gRPC.
func cutScheme(text string) (rest, scheme string, err error) {
	if text == "" {
		return "", "", fault(text, "it is empty")
	}
	if strings.HasPrefix(text, "unix:") {
		return "", "", nil
	}
	if !strings.Contains(text, "://") {
		return text, "", nil
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "", "", fault(text, "it is no URL")
	case u.Scheme == "grpc" || u.Scheme == "grpcs":
		return "", "", fault(text, "it begins with "+u.Scheme+"://, where TLS has https:// and plain text nothing")
	case u.Scheme != "http" && u.Scheme != "https":
		return "", "", nil
	case u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return "", "", fault(text, "it has more than a host and a port")
	case u.Host == "":
		return "", "", fault(text, "it has no host")
	}
	return u.Host, u.Scheme, nil
}

func fault(text, cause string) error {
	return fmt.Errorf("%q is not the address of a node: %s; want a host such as localhost, or host:port", text, cause)
}

// OnThisMachine reports whether what is sent to an address of a connection stays on this machine.
func OnThisMachine(address string) bool {
	if strings.HasPrefix(address, "unix:") {
		return true
	}
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

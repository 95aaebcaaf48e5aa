// Package publicaddress refuses connections to addresses that are not public, for requests whose
// URLs other people write (SSRF): those of webhooks, and of http steps.
package publicaddress

import (
	"fmt"
	"net/netip"
	"syscall"
)

// Error says that a host resolves to an address that is refused. It leaves the address out: the
// names of a private network are none of the caller's business.
type Error struct {
	// Kind is what the address is, such as "a loopback".
	Kind string
}

func (e *Error) Error() string {
	return fmt.Sprintf("the host resolves to %s address, which is refused", e.Kind)
}

// refused lists what is no public address (the registries of special-purpose addresses of IANA).
// IPv6 outside of 2000::/3 needs no rows.
var refused = []struct {
	prefix netip.Prefix
	kind   string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "an unspecified"},
	{netip.MustParsePrefix("10.0.0.0/8"), "a private"},
	{netip.MustParsePrefix("100.64.0.0/10"), "a private (carrier-grade NAT)"},
	{netip.MustParsePrefix("127.0.0.0/8"), "a loopback"},
	{netip.MustParsePrefix("169.254.0.0/16"), "a link-local"},
	{netip.MustParsePrefix("172.16.0.0/12"), "a private"},
	{netip.MustParsePrefix("192.0.0.0/24"), "a reserved"},
	{netip.MustParsePrefix("192.0.2.0/24"), "a documentation"},
	{netip.MustParsePrefix("192.88.99.0/24"), "a tunnel's (6to4)"},
	{netip.MustParsePrefix("192.168.0.0/16"), "a private"},
	{netip.MustParsePrefix("198.18.0.0/15"), "a benchmarking"},
	{netip.MustParsePrefix("198.51.100.0/24"), "a documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), "a documentation"},
	{netip.MustParsePrefix("224.0.0.0/4"), "a multicast"},
	{netip.MustParsePrefix("240.0.0.0/4"), "a reserved"},
	{netip.MustParsePrefix("::1/128"), "a loopback"},
	{netip.MustParsePrefix("::/128"), "an unspecified"},
	{netip.MustParsePrefix("::ffff:0:0/96"), "an IPv4-mapped"},
	{netip.MustParsePrefix("64:ff9b::/96"), "a translated (NAT64)"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "a translated (NAT64)"},
	// Those of Teredo too, which contain an IPv4 address.
	{netip.MustParsePrefix("2001::/23"), "a reserved"},
	{netip.MustParsePrefix("2001:db8::/32"), "a documentation"},
	{netip.MustParsePrefix("2002::/16"), "a tunnel's (6to4)"},
	{netip.MustParsePrefix("3fff::/20"), "a documentation"},
	{netip.MustParsePrefix("fc00::/7"), "a private"},
	{netip.MustParsePrefix("fe80::/10"), "a link-local"},
	{netip.MustParsePrefix("ff00::/8"), "a multicast"},
}

var globalIPv6 = netip.MustParsePrefix("2000::/3")

// Refused returns what an address is that is not public, such as "a private"; empty: it is public.
func Refused(a netip.Addr) (kind string) {
	zone := a.Zone() != ""
	a = a.WithZone("") // No prefix contains an address with a zone.
	for _, r := range refused {
		if r.prefix.Contains(a) {
			return r.kind
		}
	}
	switch {
	case zone:
		return "a link-local"
	case a.Is6() && !globalIPv6.Contains(a):
		return "a reserved"
	default:
		return ""
	}
}

// Control returns the Control of a net.Dialer that refuses addresses which are neither public nor
// in one of some networks, with an *Error. It sees the address that the name was resolved to, right
// before the connection is made.
func Control(networks ...netip.Prefix) func(network, address string, _ syscall.RawConn) error {
	return func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return &Error{"an unreadable"}
		}
		for _, n := range networks {
			if n.Contains(at.Addr()) {
				return nil
			}
		}
		if kind := Refused(at.Addr()); kind != "" {
			return &Error{kind}
		}
		return nil
	}
}

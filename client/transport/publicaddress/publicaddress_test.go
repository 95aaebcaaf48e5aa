package publicaddress_test

import (
	"net/netip"
	"strings"
	"testing"

	"runlog/client/transport/publicaddress"
)

// TestAddressesBUS7 has the addresses that are refused, and their neighbours.
func TestAddressesBUS7(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		address string
		want    string // of the kind; empty: public
	}{
		{"8.8.8.8", ""}, {"1.1.1.1", ""}, {"93.184.216.34", ""},
		{"9.255.255.255", ""}, {"10.0.0.0", "private"}, {"10.255.255.255", "private"}, {"11.0.0.0", ""},
		{"100.63.255.255", ""}, {"100.64.0.0", "NAT"}, {"100.127.255.255", "NAT"}, {"100.128.0.0", ""},
		{"126.255.255.255", ""}, {"127.0.0.1", "loopback"}, {"127.255.255.254", "loopback"}, {"128.0.0.0", ""},
		{"169.253.255.255", ""}, {"169.254.169.254", "link-local"}, {"169.255.0.0", ""},
		{"172.15.255.255", ""}, {"172.16.0.0", "private"}, {"172.31.255.255", "private"}, {"172.32.0.0", ""},
		{"192.167.255.255", ""}, {"192.168.0.1", "private"}, {"192.169.0.0", ""}, {"192.0.0.8", "reserved"}, {"192.0.2.1", "documentation"}, {"192.88.99.1", "6to4"},
		{"198.17.255.255", ""}, {"198.18.0.0", "benchmarking"}, {"198.20.0.0", ""}, {"198.51.100.1", "documentation"}, {"203.0.113.1", "documentation"},
		{"0.0.0.0", "unspecified"}, {"0.1.2.3", "unspecified"}, {"1.0.0.0", ""},
		{"223.255.255.255", ""}, {"224.0.0.1", "multicast"}, {"240.0.0.1", "reserved"}, {"255.255.255.255", "reserved"},
		{"2606:4700:4700::1111", ""}, {"2a00:1450::1", ""},
		{"::", "unspecified"}, {"::1", "loopback"}, {"::2", "reserved"}, {"::127.0.0.1", "reserved"},
		{"::ffff:8.8.8.8", "IPv4-mapped"}, {"::ffff:10.0.0.1", "IPv4-mapped"},
		{"64:ff9b::a00:1", "NAT64"}, {"64:ff9b:1::1", "NAT64"}, {"64:ff9b:2::1", "reserved"},
		{"100::1", "reserved"}, {"2001::1", "reserved"}, {"2001:1ff::1", "reserved"}, {"2001:200::1", ""}, {"2001:db8::1", "documentation"},
		{"2002:a00:1::1", "6to4"}, {"3fff::1", "documentation"}, {"4000::1", "reserved"}, {"5f00::1", "reserved"},
		{"fc00::1", "private"}, {"fd12::1", "private"}, {"fe80::1", "link-local"}, {"fe80::1%eth0", "link-local"}, {"2606:4700::1%eth0", "link-local"},
		{"fec0::1", "reserved"}, {"ff02::1", "multicast"},
	} {
		got := publicaddress.Refused(netip.MustParseAddr(tt.address))
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: want %q, got %q", tt.address, tt.want, got)
		}
		err := publicaddress.Control()("tcp", netip.AddrPortFrom(netip.MustParseAddr(tt.address), 443).String(), nil)
		if (err == nil) != (tt.want == "") {
			t.Errorf("%s: dialled: %v", tt.address, err)
		}
	}
	if publicaddress.Control()("tcp", "example.com:443", nil) == nil {
		t.Error("an address that is none is dialled")
	}
}

// TestNetworksENG7: a caller opens networks of its own, and nothing beside them.
func TestNetworksENG7(t *testing.T) {
	t.Parallel()
	control := publicaddress.Control(netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/64"))
	for address, want := range map[string]bool{
		"10.1.2.3:80": true, "10.2.0.0:80": false, "[fd00::1]:80": true, "[fd01::1]:80": false, "127.0.0.1:80": false, "8.8.8.8:80": true,
		"[::ffff:10.1.2.3]:80": false,
	} {
		if err := control("tcp", address, nil); (err == nil) != want {
			t.Errorf("%s: %v", address, err)
		}
	}
}

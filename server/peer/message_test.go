package peer

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"
)

// TestTheBytesOfTheHandshake holds the encoding to what docs/formats.md shows. Other builds read
// these bytes.
func TestTheBytesOfTheHandshake(t *testing.T) {
	n1 := Identity{NodeID: "n1", RaftID: "n1.7", Format: 3, Version: "v1"}
	n1.Cluster[0] = 0xaa
	docs, err := os.ReadFile("../../docs/formats.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		message message
		want    string
	}{
		"hello": {
			message{Type: hello, Kind: KindRaft, Identity: n1, Want: "n2.9"},
			"72756e6c6f670a 01 68 72 0024 026e31 046e312e37 aa000000000000000000000000000000 00000003 027631 046e322e39 c67db881",
		},
		"welcome": {
			message{Type: welcome, Kind: KindNode, Identity: n1},
			"72756e6c6f670a 01 77 6e 0020 026e31 046e312e37 aa000000000000000000000000000000 00000003 027631 00 d722a815",
		},
		"go": {
			message{Type: proceed, Kind: KindRaft},
			"72756e6c6f670a 01 67 72 0000 d0a621d4",
		},
		"refusal": {
			message{Type: refusal, Reason: NotAMember, Text: "no"},
			"72756e6c6f670a 01 78 00 0011 0c4e4f545f415f4d454d424552 00026e6f e221fe5c",
		},
	} {
		got, err := test.message.encode()
		if err != nil {
			t.Fatal(err)
		}
		if plain := strings.ReplaceAll(test.want, " ", ""); hex.EncodeToString(got) != plain {
			t.Errorf("%s:\ngot  %x\nwant %s", name, got, plain)
		}
		if !strings.Contains(string(docs), test.want) {
			t.Errorf("docs/formats.md does not show the %s:\n%s", name, test.want)
		}
		back, err := readMessage(iotest.OneByteReader(bytes.NewReader(got)))
		if err != nil || back != test.message {
			t.Errorf("%s came back as %+v, %v", name, back, err)
		}
	}
}

// TestEveryDamageIsFound shows that no changed bit, and no missing byte, of a hello goes through.
func TestEveryDamageIsFound(t *testing.T) {
	sound, err := message{Type: hello, Kind: KindRaft, Identity: identity("n1"), Want: "n2.7"}.encode()
	if err != nil {
		t.Fatal(err)
	}
	for bit := range 8 * len(sound) {
		b := bytes.Clone(sound)
		b[bit/8] ^= 1 << (bit % 8)
		if m, err := readMessage(bytes.NewReader(b)); err == nil {
			t.Errorf("with bit %d changed it is %+v", bit, m)
		}
	}
	for n := range sound {
		if _, err := readMessage(bytes.NewReader(sound[:n])); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// TestIdentitiesThatNoNodeHas shows what is never sent, and so never believed.
func TestIdentitiesThatNoNodeHas(t *testing.T) {
	for name, change := range map[string]func(*Identity){
		"no name":             func(i *Identity) { i.NodeID = "" },
		"long name":           func(i *Identity) { i.NodeID = strings.Repeat("n", maxNodeID+1); i.RaftID = i.NodeID + ".1" },
		"control character":   func(i *Identity) { i.NodeID = "n\x1b"; i.RaftID = i.NodeID + ".1" },
		"no Raft name":        func(i *Identity) { i.RaftID = "" },
		"another's Raft name": func(i *Identity) { i.RaftID = "n2.7" },
		"no dot":              func(i *Identity) { i.RaftID = "n17" },
		"no number":           func(i *Identity) { i.RaftID = "n1." },
		"a longer name's":     func(i *Identity) { i.RaftID = "n1.x.7" },
		"long build":          func(i *Identity) { i.Version = strings.Repeat("v", maxField+1) },
	} {
		i := identity("n1")
		change(&i)
		if _, err := (message{Type: hello, Kind: KindRaft, Identity: i}).encode(); !errors.Is(err, errIdentity) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRefusalsCanBeShown shows that what the other end says is cut, and brings no control
// characters to a terminal.
func TestRefusalsCanBeShown(t *testing.T) {
	long := "\x1b[31m" + strings.Repeat("é", maxMessage)
	b, err := message{Type: refusal, Kind: KindRaft, Reason: "X\nY", Text: long}.encode()
	if err != nil || len(b) > headSize+maxBody+4 {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	m, err := readMessage(bytes.NewReader(b))
	if err != nil || m.Reason != "X Y" || strings.Contains(m.Text, "\x1b") || len(m.Text) > maxMessage || !strings.HasSuffix(m.Text, "é") {
		t.Errorf("%q: %q, %v", m.Reason, m.Text, err)
	}
}

// FuzzHello shows that no bytes crash the reader, that it takes no more than a message's, and that
// what it understands is what would have been written.
func FuzzHello(f *testing.F) {
	for _, m := range []message{
		{Type: hello, Kind: KindRaft, Identity: identity("n1"), Want: "n2.7"},
		{Type: welcome, Kind: KindNode, Identity: identity("n1")},
		{Type: proceed, Kind: KindRaft},
		{Type: refusal, Reason: NotAMember, Text: "join first"},
	} {
		b, err := m.encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	n := &Mesh{}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		_, err := readMessage(r)
		read := len(b) - r.Len()
		if read > headSize+maxBody+4 {
			t.Fatalf("read %d bytes", read)
		}
		// The checksum keeps what is behind it from the fuzzer: so it is tried without, too.
		if len(b) >= headSize && len(b) <= headSize+maxBody {
			roundTrip(t, b)
		}
		if err == nil {
			roundTrip(t, b[:read-4])
		}
		if err == nil {
			return
		}
		if refused := n.misread(err); refused != nil && (refused.Reason == "" || refused.Message == "" || !plain(refused.Message)) {
			t.Fatalf("a refusal that cannot be shown: %+v", refused)
		}
	})
}

// roundTrip decodes a message without its checksum and, where that is possible, encodes it again.
func roundTrip(t *testing.T, data []byte) {
	m, err := decode(data)
	if err != nil || data[len(magic)] != handshakeVersion || !bytes.HasPrefix(data, []byte(magic)) {
		return
	}
	again, err := m.encode()
	if err != nil {
		t.Fatalf("%+v was decoded and cannot be encoded: %v", m, err)
	}
	back, err := readMessage(bytes.NewReader(again))
	if err != nil || back != m {
		t.Fatalf("%+v came back as %+v, %v", m, back, err)
	}
	if m.Type != refusal && !bytes.Equal(again[len(magic)+5:len(again)-4], data[headSize:]) {
		t.Fatalf("%x came back as %x", data, again)
	}
}

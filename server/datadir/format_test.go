package datadir

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"runlog/server/cluster"
	"runlog/storage/machine"
)

// TestFormatNamesTheStoredMessages: nodes of one format and one feature level have the same
// messages in the log and on disk. A member of an older build would ignore a new field, and its
// state would differ from that of the others.
func TestFormatNamesTheStoredMessages(t *testing.T) {
	t.Parallel()
	files := map[string][]byte{}
	protoregistry.GlobalFiles.RangeFilesByPackage("record.v1", func(f protoreflect.FileDescriptor) bool {
		text, err := proto.MarshalOptions{Deterministic: true}.Marshal(protodesc.ToFileDescriptorProto(f))
		if err != nil {
			t.Fatal(err)
		}
		files[f.Path()] = text
		return true
	})
	all := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(files)) {
		all.Write(files[path])
	}
	of := fmt.Sprintf("format %d, level %d, data %d: ", cluster.Format, machine.FeatureLevel, Format)
	want := fmt.Sprintf("%s%x", of, all.Sum(nil))
	known, err := os.Open("testdata/formats.golden")
	if err != nil {
		t.Fatal(err)
	}
	defer known.Close()
	lines := bufio.NewScanner(known)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), of) {
			if lines.Text() != want {
				t.Errorf("proto/record/v1 has changed since\n%s\nRaise machine.FeatureLevel for what is proposed only once every member "+
					"knows it, and else cluster.Format. Then add the line that this test asks for", lines.Text())
			}
			return
		}
	}
	t.Errorf("testdata/formats.golden lacks the line (%v)\n%s", lines.Err(), want)
}

package client

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// TestWholeAPI: each method of each service has one of the same name on the client. AppendStream is
// below the Appender.
func TestWholeAPI(t *testing.T) {
	c, methods := reflect.TypeFor[*Client](), 0
	protoregistry.GlobalFiles.RangeFilesByPackage(runlogv1.File_runlog_v1_event_service_proto.Package(), func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			service := f.Services().Get(i)
			for j := range service.Methods().Len() {
				methods++
				name := string(service.Methods().Get(j).Name())
				if name == "AppendStream" {
					name = "NewAppender"
				}
				if _, ok := c.MethodByName(name); !ok {
					t.Errorf("%s.%s: the client has no method %s", service.Name(), service.Methods().Get(j).Name(), name)
				}
			}
		}
		return true
	})
	if methods < 36 {
		t.Errorf("the test saw %d methods", methods)
	}
}

// TestAllReasons: each reason of the contract has a constant here, under the same name.
func TestAllReasons(t *testing.T) {
	have := declared(t, "reason.go")
	want := declared(t, "../proto/contract/reason.go")
	for name := range want {
		if !have[name] {
			t.Errorf("reason.go has no %s", name)
		}
	}
	if n := len(contract.Reasons()); len(want) < n {
		t.Errorf("the test saw %d of %d reasons", len(want), n)
	}
}

// declared returns the names of a file's constants that begin with Reason.
func declared(t *testing.T, path string) map[string]bool {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]bool)
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Names) == 1 && len(spec.Values) == 1 {
			if name := spec.Names[0].Name; len(name) > len("Reason") && name[:len("Reason")] == "Reason" {
				names[name] = true
			}
		}
		return true
	})
	return names
}

// TestFailuresHaveNames: a failure without a reason is counted by its code.
func TestFailuresHaveNames(t *testing.T) {
	for i, e := range []*Error{{Reason: ReasonNoLeader, Code: 14}, {Code: 14}} {
		if want := []string{"NO_LEADER", "Unavailable"}[i]; e.Name() != want {
			t.Errorf("failure %d has the name %q, want %q", i, e.Name(), want)
		}
	}
}

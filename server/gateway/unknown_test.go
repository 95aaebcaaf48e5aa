package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"runlog/proto/contract"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// readOnly reports whether a method changes nothing, by its proto file.
func readOnly(m protoreflect.MethodDescriptor) bool {
	method, _ := route(m)
	options := m.Options().(*descriptorpb.MethodOptions)
	return method == http.MethodGet || options.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
}

// TestUnknownFieldsENV11: every write refuses a field number that this node does not know, in each
// message of its request. Reads ignore it.
func TestUnknownFieldsENV11(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		unknown := protowire.AppendVarint(protowire.AppendTag(nil, 9000, protowire.VarintType), 1)
		checked := 0
		for _, m := range apiMethods() {
			for _, at := range messagesIn(m.Input(), nil) {
				req, within := request(m.Input()), ""
				inner := req
				for _, f := range at {
					within += f.JSONName()
					if f.IsList() {
						if inner.Mutable(f).List().Len() == 0 {
							inner.Mutable(f).List().AppendMutable()
						}
						inner, within = inner.Mutable(f).List().Get(0).Message(), within+"[0]"
					} else {
						inner = inner.Mutable(f).Message()
					}
					within += "."
				}
				inner.SetUnknown(unknown)
				err := call(n, m, req)
				if readOnly(m) {
					if err != nil && strings.Contains(status.Convert(err).Message(), "9000") {
						t.Errorf("%s looks at an unknown field: %v", m.FullName(), err)
					}
					continue
				}
				if err == nil {
					t.Errorf("%s takes an unknown field of %s", m.FullName(), inner.Descriptor().FullName())
					continue
				}
				r := servertest.RefusalOf(t, err)
				if r.Reason != contract.ReasonInvalidArgumentField || !strings.Contains(r.Fields[within+"9000"], string(inner.Descriptor().FullName())) {
					t.Errorf("%s with an unknown field of %s: %v %q", m.FullName(), within, err, r.Fields)
				}
				checked++
			}
		}
		if checked < 70 {
			t.Errorf("checked %d messages", checked)
		}
		n.HTTP("GET", "/v1/runs/x", "").Refused(t, contract.ReasonRunNotFound)
	})
}

// messagesIn returns the paths to the messages in a request, the request itself first.
func messagesIn(md protoreflect.MessageDescriptor, within []protoreflect.FieldDescriptor) (all [][]protoreflect.FieldDescriptor) {
	all = append(all, within)
	for _, f := range fieldsOf(md) {
		if f.Message() == nil || f.IsMap() || md.ParentFile().Package() == "google.protobuf" {
			continue
		}
		at := append(append([]protoreflect.FieldDescriptor(nil), within...), f)
		all = append(all, messagesIn(f.Message(), at)...)
	}
	return all
}

// TestOnlyReadsIgnoreENV11: the methods without a GET that ignore unknown fields.
func TestOnlyReadsIgnoreENV11(t *testing.T) {
	var named []string
	for _, m := range apiMethods() {
		if method, _ := route(m); method != http.MethodGet && readOnly(m) {
			named = append(named, string(m.Name()))
		}
	}
	servertest.WantEqual(t, "reads without a GET", strings.Join(named, " "), "Backup ProjectRun")
}

// TestUnknownMembersENV11: every route of a write refuses what its request does not have: a member
// of the body or of an object in it, a parameter.
func TestUnknownMembersENV11(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		for _, m := range apiMethods() {
			method, path := route(m)
			if path == "" || readOnly(m) {
				continue
			}
			target := strings.NewReplacer("{run_id}", "run", "{tenant_id}", "t", "{subscription_id}", "s", "{token_id}", "t").Replace(path)
			refused := func(a servertest.HTTPAnswer, field string) {
				t.Helper()
				if r := a.Refused(t, contract.ReasonInvalidArgumentField); r.Fields[field] == "" {
					t.Errorf("%s %s with an unknown %s: %q", method, target, field, r.Fields)
				}
			}
			refused(n.HTTP(method, target+"?nope=1", ""), "nope")
			if method == http.MethodDelete {
				continue
			}
			refused(n.HTTP(method, target, `{"nope":1}`), "nope")
			for _, f := range fieldsOf(m.Input()) {
				if f.Message() == nil || f.IsMap() || f.Message().ParentFile().Package() != "runlog.v1" {
					continue
				}
				value, at := `{"nope":1}`, f.JSONName()+".nope"
				if f.IsList() {
					value, at = "["+value+"]", f.JSONName()+"[0].nope"
				}
				refused(n.HTTP(method, target, `{"`+f.JSONName()+`":`+value+`}`), at)
			}
		}
	})
}

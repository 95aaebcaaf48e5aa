package decode

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"runlog/proto/contract"
)

// Query is grpc-gateway's parser of query parameters, except that it refuses parameters that a
// request does not have, or has in its path, and those without a value (ENV-13). If it ignored a
// mistyped or an empty filter, the answer would contain more than requested.
type Query struct{ known runtime.DefaultQueryParser }

var _ runtime.QueryParameterParser = Query{}

// Parse sets the fields of m.
func (q Query) Parse(m proto.Message, values url.Values, path *utilities.DoubleArray) error {
	for name := range values {
		field := parameter(m.ProtoReflect().Descriptor(), name)
		if field == nil || path.HasCommonPrefix([]string{string(field.Name())}) {
			return fmt.Errorf("%q is not a parameter of this call; GET /openapi.json lists them", name)
		}
		if spelledTwice(name, field, values) {
			return fmt.Errorf("%q is given in two spellings", name)
		}
		if !emptyAllowed(field) && slices.Contains(values[name], "") {
			return fmt.Errorf("%q %s", name, emptyFault)
		}
	}
	upperValues(m.ProtoReflect().Descriptor(), values)
	return q.known.Parse(m, values, path)
}

// emptyFault is the fault of a filter without a value.
const emptyFault = "is empty, and would select everything: give it a value, or leave it out"

// emptyAllowed reports whether a parameter may be empty. The token of a first page is.
func emptyAllowed(fd protoreflect.FieldDescriptor) bool {
	return strings.HasSuffix(string(fd.Name()), "_token")
}

// parameter returns the field of the request that a parameter sets; nil: none.
func parameter(md protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	fd := findField(md, name)
	if fd == nil || fd.IsMap() || fd.Message() != nil && !isWellKnown(fd.Message()) {
		return nil
	}
	return fd
}

// spelledTwice reports whether two parameters set one field. The parser would use either of them.
func spelledTwice(name string, field protoreflect.FieldDescriptor, values url.Values) bool {
	other := string(field.Name())
	return name != other && values.Has(other)
}

// ExplainQuery returns every fault of a query that the parser has refused; nil: none found. pattern
// is the route, such as "/v1/runs/{run_id}".
func ExplainQuery(rawQuery string, md protoreflect.MessageDescriptor, pattern string) *contract.Error {
	x := faults{}
	values := x.split(rawQuery)
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if fd := parameter(md, name); fd != nil && spelledTwice(name, fd, values) {
			x.fault(fd.JSONName(), "appears as %q too: keep one", fd.Name())
			continue
		}
		x.parameter(name, values[name], md, pattern)
	}
	if len(x.bad) == 0 {
		return nil
	}
	return contract.NewError(x.bad)
}

// RefuseQuery refuses parameters of a call that takes none; nil: there are none.
func RefuseQuery(rawQuery string) *contract.Error {
	if rawQuery == "" {
		return nil
	}
	x := faults{}
	for part := range strings.SplitSeq(rawQuery, "&") {
		name, _, _ := strings.Cut(part, "=")
		x.fault(showName(name), "is a query parameter, which this call does not read: put it into the JSON body")
	}
	return contract.NewError(x.bad)
}

// split splits a query into its parameters.
func (f *faults) split(rawQuery string) url.Values {
	values := url.Values{}
	for part := range strings.SplitSeq(rawQuery, "&") {
		one, err := url.ParseQuery(part)
		if err != nil {
			f.fault(showName(part), "is not a well-formed parameter: %s", strings.TrimPrefix(err.Error(), "invalid "))
			continue
		}
		for name, texts := range one {
			values[name] = append(values[name], texts...)
		}
	}
	return values
}

func (f *faults) parameter(name string, texts []string, md protoreflect.MessageDescriptor, pattern string) {
	fd := parameter(md, name)
	switch {
	case fd == nil:
		help := "GET /openapi.json lists them"
		if near := nearest(name, md.Fields()); near != nil && parameter(md, near.JSONName()) != nil {
			help = "did you mean " + contract.Spellings(near.JSONName()) + "?"
		}
		f.fault(showName(name), "is not a parameter of this call; %s", help)
	case strings.Contains(pattern, "{"+string(fd.Name())+"}"):
		f.fault(fd.JSONName(), "is part of the path: remove the parameter")
	case !fd.IsList() && len(texts) > 1:
		f.fault(fd.JSONName(), "appears %d times: keep one", len(texts))
	case !emptyAllowed(fd) && slices.Contains(texts, ""):
		f.fault(fd.JSONName(), emptyFault)
	default:
		for _, text := range upperQuery(fd, texts) {
			one := url.Values{string(fd.Name()): {text}}
			if new(runtime.DefaultQueryParser).Parse(newMessage(md), one, utilities.NewDoubleArray(nil)) != nil {
				f.fault(fd.JSONName(), "%s", parameterHelp(text, fd))
			}
		}
	}
}

// parameterHelp describes the value that a parameter needs.
func parameterHelp(text string, fd protoreflect.FieldDescriptor) string {
	if fd.Message() != nil && fd.Message().FullName() == "google.protobuf.Timestamp" {
		return contract.TimeHelp(text) + "; got " + contract.Quote(text)
	}
	return scalarHelp(fd) + ", got " + contract.Quote(text)
}

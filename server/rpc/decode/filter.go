package decode

import (
	"bytes"

	"google.golang.org/protobuf/reflect/protoreflect"

	"runlog/proto/contract"
	"runlog/proto/contract/jsontext"
)

// filters are the messages of bodies whose texts select, so that an absent one means any.
var filters = map[protoreflect.FullName]bool{
	"runlog.v1.LeaseRunsRequest":   true,
	"runlog.v1.SubscriptionFilter": true,
}

// refuseEmptyFilters refuses a body with an empty text in a filter (ENV-13); nil: it has none. Once
// decoded, the text would be as absent as one that was left out.
func refuseEmptyFilters(body []byte, md protoreflect.MessageDescriptor) *contract.Error {
	x := faults{}
	x.emptyFilters(bytes.TrimSpace(body), md, "")
	if len(x.bad) == 0 {
		return nil
	}
	return contract.NewError(x.bad)
}

func (f *faults) emptyFilters(text []byte, md protoreflect.MessageDescriptor, path string) {
	c := jsontext.Members(text)
	for quoted, value, ok := c.Quoted(); ok; quoted, value, ok = c.Quoted() {
		fd := findField(md, jsontext.Text(quoted))
		switch {
		case fd == nil || fd.Cardinality() == protoreflect.Repeated:
		case fd.Kind() == protoreflect.StringKind && filters[md.FullName()] && string(value) == `""`:
			f.fault(join(path, fd.JSONName()), emptyFault)
		case fd.Message() != nil && !isWellKnown(fd.Message()):
			f.emptyFilters(value, fd.Message(), join(path, fd.JSONName()))
		}
	}
}

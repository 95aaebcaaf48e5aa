package client

import (
	"context"
	"iter"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// PageRequest is the request of a list that is read page by page.
type PageRequest interface {
	proto.Message
	GetPageToken() string
}

// Page is a part of a list. A page without a token is the last one.
type Page interface{ GetNextPageToken() string }

// Pages yields the items of a list from req.PageToken on, page by page. list is a method of a
// Client, and items returns the items of its answer. req.PageSize is the size of one page. An error
// ends the iteration.
//
//	client.Pages(ctx, &runlogv1.ListQueuesRequest{TenantId: "acme"}, c.ListQueues,
//		(*runlogv1.ListQueuesResponse).GetQueues)
func Pages[Q PageRequest, R Page, T any](ctx context.Context, req Q, list func(context.Context, Q) (R, error), items func(R) []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		// The caller may use the request again, and the sequence too.
		req := proto.CloneOf(req)
		for {
			page, err := list(ctx, req)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range items(page) {
				if !yield(item, nil) {
					return
				}
			}
			next := page.GetNextPageToken()
			if next == "" {
				return
			}
			// The messages have no setter that generic code could call.
			m := req.ProtoReflect()
			m.Set(m.Descriptor().Fields().ByName("page_token"), protoreflect.ValueOfString(next))
		}
	}
}

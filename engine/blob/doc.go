// Package blob reads and writes blobs by their URIs, such as the plans of runs (PLAN-1).
//
//	stores, err := blob.New(blob.Options{Allow: []string{"s3://plans"}})
//	body, err := stores.Open(ctx, "s3://plans/nightly.json")
//
//	             ┌─ file            files of this machine
//	Registry ────┼─ http, https     read only, bounded redirects
//	 by scheme   ├─ s3              minio-go
//	             └─ gs, azblob, …   the module engine/blob/cloud, by Register
//
// # Errors
//
// An unknown scheme is a *SchemeError with the schemes that are known. Every other failure of a
// store is an *Error: its Kind tells a caller whether it may try again. An absent blob is also
// fs.ErrNotExist. A body that ends before its announced length ends with io.ErrUnexpectedEOF.
//
// # Safety
//
// A URI may be the text of a stranger. Options.Allow limits what a process opens, also through
// redirects and through symbolic links. Without it, a URI may name any file and any host that the
// process can reach, also at private addresses. No URI has credentials, and no error repeats a
// query, which may have a signature.
//
// A body is read as it arrives, and no store limits its size: ReadAll does. Options.Timeout bounds
// every call, with the reading of the body.
package blob

// Package webhook posts events to an HTTP endpoint (BUS-7).
//
//	Send ─► encode ─► sign ─► POST ─► 200 to 299: taken
//	                                  410: *attempt.GoneError
//	                                  413: *attempt.PermanentError
//	                                  429, 503 with Retry-After: *attempt.BusyError
//	                                  any other, a redirect too: a failed attempt
//
// A request is a CloudEvent in structured or binary mode, signed by Standard Webhooks 1.0.0: the
// message id, the time and the body are under the signature, the headers of binary mode are not. A
// secret file has one or two lines, each whsec_ and 24 to 64 bytes in base64; every line signs.
//
// The endpoint is foreign. The timeout covers a request from the dialling to the answer's body, of
// which at most 4 KiB are read. Private addresses are refused when a connection is dialled, after
// the resolution of the name, so no answer of a DNS server leads to one. Proxies are not used.
// Errors show the answer's status and the begin of its body, but nothing of the URL behind its
// host, of headers, or of secrets.
package webhook

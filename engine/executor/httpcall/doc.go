// Package httpcall executes a step as one HTTP request (ENG-3). Its Client also serves other
// executors that call servers.
//
// The inputs of a step:
//
//	method         by default GET, with a body POST
//	url            http or https
//	headers        names and values
//	secretHeaders  names, and of each {ref, prefix}: the value is the prefix and the secret
//	body           any JSON, sent as it is
//
// The output is {status, contentType, body}; the body is JSON if it parses, and a text otherwise.
//
// Each request has the header Idempotency-Key: the same for all retries of the platform within one
// logical attempt, so a server that knows the header acts once.
//
//	answer                             the step
//	2xx                                has succeeded
//	429, 502, 503, 504                 is retryable, after Retry-After
//	none, cut off                      is retryable
//	any other, too large, elsewhere    has failed for good: HTTP_404 and so on
//
// The Client follows redirects to the same server only: a header may have a secret. Answers are
// bounded in bytes and by the context. An address that Control refuses fails the step for good:
// HTTP_ADDRESS_REFUSED.
package httpcall

// Package nats publishes events to a stream of NATS JetStream, as CloudEvents in structured mode
// (BUS-7).
//
// The message id is that of the CloudEvent, with the cluster: the stream drops an event that is
// published again within its window of duplicates, and no other one (ENV-10).
//
// In the subject, the tenantId, the event type and the runId replace {tenant}, {type} and {run}, as
// one token each: every byte other than a letter, a digit, "_" and "-" is written as % and two
// upper-case hexadecimal digits. An empty text is a single %. So different texts are different
// tokens, and no text adds a token or a wildcard.
//
// The connection is made in the background, and again whenever it ends. While there is none, an
// attempt fails at once: nothing is buffered. Credentials are read again for every connection.
package nats

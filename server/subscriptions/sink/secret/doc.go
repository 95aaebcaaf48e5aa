// Package secret reads the secrets of sinks, which subscriptions name by a reference (BUS-7).
//
// A secret is a file below a directory of the node, which --sink-secrets-dir names:
//
//	tenants/<tenant>/<name>   for the subscriptions of a tenant
//	cluster/<name>            for the subscriptions of all tenants
//
// In <tenant> every byte other than a letter, a digit, "_", "-" and "." is percent-encoded; so is
// every "." of the tenants "." and "..". A name is 1 to 128 of these characters, but neither "."
// nor "..". A symbolic link may not lead out of the directory.
//
// Errors have the path below the directory, and nothing of the file's content.
package secret

// Package access is AccessService: which identity calls, the API tokens of the cluster (SEC-2), and
// the limits of tenants (SEC-6).
package access

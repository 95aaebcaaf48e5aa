// Package admin serves the admin listener: health, metrics, profiles, the import of closed runs,
// rebuilds of the projection, and gRPC reflection. All but metrics and health needs an admin.
package admin

package admin

import "net/http"

// Routes returns the routes that need the credentials of an admin, by pattern.
func Routes() map[string]http.HandlerFunc { return new(Admin).routes() }

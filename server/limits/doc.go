// Package limits holds tenants to what they may use (SEC-6): events and bytes a second, and
// streams. It decides before anything is stored.
//
// A rate is a bucket that holds one second's worth. A request is let in while anything is left, and
// may take more than that: what follows waits until it is paid back. So a large request passes
// under any limit, and over time no more passes than the limit says.
package limits

// Package wire converts what the store and the projector hold into messages of the API, and
// messages into JSON. It knows nothing of calls.
package wire

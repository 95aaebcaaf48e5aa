package auth

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
)

const (
	// keysFor is how long the keys of a provider are taken before they are fetched again. go-oidc
	// fetches them only for unknown keys. A token that was verified at the end of it counts for
	// another rememberFor, so a key that the provider has withdrawn counts for 10 minutes.
	keysFor = 10*time.Minute - rememberFor - fetchTimeout
	// keysAtMost is how long the last keys count while they cannot be fetched.
	keysAtMost = 24 * time.Hour
)

// providerKeys are the keys of a provider, which are fetched again after a while.
type providerKeys struct {
	life    context.Context // of the requests
	url     string
	client  *http.Client
	clock   func() time.Time
	fetches sync.Mutex // held by the one call that fetches

	mu      sync.Mutex
	current oidc.KeySet
	since   time.Time
}

var errOldKeys = errors.New("auth: the provider's keys could not be fetched for a day")

var _ oidc.KeySet = (*providerKeys)(nil)

// VerifySignature implements oidc.KeySet.
func (k *providerKeys) VerifySignature(ctx context.Context, text string) ([]byte, error) {
	current, age := k.known()
	if age >= keysFor && k.fetches.TryLock() {
		defer k.fetches.Unlock()
		next, answered := k.next()
		if payload, err := next.VerifySignature(ctx, text); answered.Load() {
			k.use(next)
			return payload, err
		}
	}
	if age >= keysAtMost {
		return nil, errOldKeys
	}
	return current.VerifySignature(ctx, text)
}

func (k *providerKeys) known() (current oidc.KeySet, age time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current == nil {
		k.current, _ = k.next()
		k.since = k.clock()
	}
	return k.current, k.clock().Sub(k.since)
}

func (k *providerKeys) use(keys oidc.KeySet) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.current, k.since = keys, k.clock()
}

// next returns a set of keys that fetches them at its first use, and whether the provider has
// answered it.
func (k *providerKeys) next() (keys oidc.KeySet, answered *atomic.Bool) {
	answered = new(atomic.Bool)
	client := *k.client
	client.Transport = answering{k.client.Transport, answered}
	return oidc.NewRemoteKeySet(oidc.ClientContext(k.life, &client), k.url), answered
}

// answering notes whether a request was answered.
type answering struct {
	next     http.RoundTripper
	answered *atomic.Bool
}

func (a answering) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := a.next.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusOK {
		a.answered.Store(true)
	}
	return resp, err
}

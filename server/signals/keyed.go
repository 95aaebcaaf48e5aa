package signals

import (
	"context"
	"sync"
)

// keyedLocks are locks by key. A key has an entry only while a caller has or wants its lock. The
// zero value is ready.
type keyedLocks struct {
	mu    sync.Mutex
	locks map[string]*keyedLock
}

type keyedLock struct {
	held  chan struct{} // full while a caller has the lock
	users int           // callers that have or want the lock
}

// lock waits for the lock of a key, as long as ctx lasts.
func (k *keyedLocks) lock(ctx context.Context, key string) (unlock func(), err error) {
	k.mu.Lock()
	l := k.locks[key]
	if l == nil {
		if k.locks == nil {
			k.locks = map[string]*keyedLock{}
		}
		l = &keyedLock{held: make(chan struct{}, 1)}
		k.locks[key] = l
	}
	l.users++
	k.mu.Unlock()
	select {
	case l.held <- struct{}{}:
		return func() {
			<-l.held
			k.leave(key, l)
		}, nil
	case <-ctx.Done():
		k.leave(key, l)
		return nil, ctx.Err()
	}
}

func (k *keyedLocks) leave(key string, l *keyedLock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(k.locks, key)
	}
}

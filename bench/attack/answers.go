package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/status"
)

// answers counts what an attacker was told.
type answers struct {
	mu    sync.Mutex
	count map[string]int // guarded by mu
}

// add counts the answer of a call; nil: it was answered.
func (a *answers) add(err error) { a.told(status.Code(err).String()) }

// told counts an answer.
func (a *answers) told(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count[what]++
}

// String lists the answers.
func (a *answers) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(a.count)) {
		parts = append(parts, fmt.Sprintf("%d %s", a.count[what], what))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

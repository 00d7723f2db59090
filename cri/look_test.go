package cri_test

import (
	"sync"
	"time"

	"podd/internal/pod"
)

// look counts events by pod.
type look struct {
	mu sync.Mutex
	n  map[pod.UID]int
}

func newLook() *look { return &look{n: map[pod.UID]int{}} }

func (l *look) event(uid pod.UID, _ time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n[uid]++
}

func (l *look) of(uid pod.UID) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n[uid]
}

// Package loop runs the managers of plugins: tasks that others hand in, and work that is
// due at a time.
package loop

import (
	"context"
	"sync"
	"time"

	"podd/internal/wake"
)

// Loop starts tasks. Create it with New. Its methods may be called from any goroutine, with any
// lock held; only Run blocks.
type Loop struct {
	wake wake.Signal

	mu    sync.Mutex // guards what follows
	tasks []func(context.Context)
}

// New returns a Loop without tasks.
func New() *Loop { return &Loop{wake: wake.New()} }

// Go makes Run call a task in a goroutine of its own, now or once it runs. The task's
// context ends with Run's.
func (l *Loop) Go(task func(context.Context)) {
	l.mu.Lock()
	l.tasks = append(l.tasks, task)
	l.mu.Unlock()
	l.Wake()
}

// Wake makes Run call expire again: something is due earlier, or there is work now.
func (l *Loop) Wake() { l.wake.Notify() }

// Idle says that Run has started all tasks.
func (l *Loop) Idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.tasks) == 0
}

// Run starts tasks and calls expire: first, when woken, and at the time that expire
// returned last. expire returns when something is due next, zero for never. Run returns
// once ctx and all tasks have ended.
func (l *Loop) Run(ctx context.Context, expire func(now time.Time) (next time.Time)) {
	var work sync.WaitGroup
	defer work.Wait()
	for {
		next := expire(time.Now())
		l.mu.Lock()
		tasks := l.tasks
		l.tasks = nil
		l.mu.Unlock()
		for _, task := range tasks {
			work.Go(func() { task(ctx) })
		}
		if !wake.Until(ctx, l.wake, next) {
			return
		}
	}
}

// Deadlines finds out what is due at a time.
type Deadlines struct {
	Now time.Time
	// Next is the earliest deadline passed to Due that is still ahead; zero for none.
	Next time.Time
}

// Due says whether a deadline has passed.
func (d *Deadlines) Due(at time.Time) bool {
	if !d.Now.Before(at) {
		return true
	}
	if d.Next.IsZero() || at.Before(d.Next) {
		d.Next = at
	}
	return false
}

package volumes

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
	"podd/internal/wipe"
)

// PendingUnmount is a pod's directory that TearDown could not remove. The pod itself
// has terminated.
type PendingUnmount struct {
	UID pod.UID `json:"uid"`
	// Path is the pod's directory.
	Path string `json:"path"`
	// Message says what prevents the removal, which process holds the mount, if it was
	// found, and what to do.
	Message string `json:"message"`
	// Since is the time of the first attempt, Tries the number of attempts, RetryAt the
	// time of the next.
	Since   time.Time `json:"since"`
	Tries   int       `json:"tries"`
	RetryAt time.Time `json:"retryAt"`
}

const (
	firstRetry = 2 * time.Second // doubles to
	lastRetry  = 2 * time.Minute
)

// PendingUnmounts lists the pending unmounts, oldest first.
func (m *Mounter) PendingUnmounts() []PendingUnmount {
	m.mu.Lock()
	defer m.mu.Unlock()
	pending := []PendingUnmount{}
	for _, p := range m.pods {
		if p.pending != nil {
			pending = append(pending, *p.pending)
		}
	}
	sort.Slice(pending, func(a, b int) bool { return pending[a].Since.Before(pending[b].Since) })
	return pending
}

// OnceRemoved calls do when a pod that was torn down has nothing mounted or on disk any
// more. If no unmount is pending, it calls do at once; otherwise the goroutine that makes
// the last, successful retry calls it. do must not block.
func (m *Mounter) OnceRemoved(uid pod.UID, do func()) {
	m.mu.Lock()
	pending := m.stateOf(uid).pending != nil
	if pending {
		m.updateState(uid, func(p *podVolumes) { p.onceRemoved = append(p.onceRemoved, do) })
	}
	m.mu.Unlock()
	if !pending {
		do()
	}
}

// Run retries pending unmounts until ctx ends, then cancels the setups in progress. It
// sleeps while nothing is due. It returns ctx's cause.
func (m *Mounter) Run(ctx context.Context) error {
	defer m.cancelAllWork()
	for {
		var due <-chan time.Time
		if at, any := m.nextRetry(); any {
			due = time.After(time.Until(at))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-m.poke:
		case <-due:
			var work sync.WaitGroup // one that hangs delays the others by hangTimeout at most
			for _, uid := range m.dueRetries(time.Now()) {
				work.Go(func() { m.retry(ctx, uid) })
			}
			work.Wait()
		}
	}
}

// RetryUnmount makes Run retry the pod's pending unmount at once, because what blocked it
// may be gone. It never blocks, and does nothing if no unmount is pending.
func (m *Mounter) RetryUnmount(uid pod.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.stateOf(uid).pending
	if d == nil {
		return
	}
	d.RetryAt = time.Now()
	m.poke.Notify()
}

func (m *Mounter) nextRetry() (next time.Time, any bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pods {
		if d := p.pending; d != nil && (!any || d.RetryAt.Before(next)) {
			next, any = d.RetryAt, true
		}
	}
	return next, any
}

func (m *Mounter) dueRetries(now time.Time) []pod.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	var uids []pod.UID
	for uid, p := range m.pods {
		if d := p.pending; d != nil && !d.RetryAt.After(now) {
			uids = append(uids, uid)
		}
	}
	return uids
}

// retry retries one pending unmount, unless another call has finished it.
func (m *Mounter) retry(ctx context.Context, uid pod.UID) {
	within, cancel := context.WithTimeoutCause(ctx, hangTimeout, errHangTimeout)
	defer cancel()
	unlock, err := m.lockAll(within, uid)
	if err != nil {
		m.postpone(uid)
		return
	}
	defer unlock()
	_ = m.finishUnmount(ctx, uid) // recordRemoval has logged the error and set the next retry
}

// postpone delays the retry of a pending unmount while another call holds the pod's lock.
func (m *Mounter) postpone(uid pod.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d := m.stateOf(uid).pending; d != nil {
		d.RetryAt = time.Now().Add(firstRetry)
	}
}

// finishUnmount retries the pod's pending unmount, if it has one. The pod's lock is
// held.
func (m *Mounter) finishUnmount(ctx context.Context, uid pod.UID) error {
	if !m.hasPendingUnmount(uid) {
		return nil
	}
	err := m.remove(ctx, uid)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	m.recordRemoval(uid, err)
	if err != nil {
		return fmt.Errorf("leftovers of the pod's previous run are in the way: %w", err)
	}
	return nil
}

// recordRemoval records the outcome of a removal.
func (m *Mounter) recordRemoval(uid pod.UID, err error) {
	now := time.Now()
	m.mu.Lock()
	old := m.stateOf(uid).pending
	m.mu.Unlock()
	if err == nil {
		m.mu.Lock()
		waiting := m.stateOf(uid).onceRemoved
		m.updateState(uid, func(p *podVolumes) { p.pending, p.onceRemoved, p.pod = nil, nil, nil })
		m.mu.Unlock()
		if old != nil {
			m.log.Info("removed pod directory after retrying", "uid", uid, "tries", old.Tries+1, "after", now.Sub(old.Since))
		}
		for _, do := range waiting {
			do()
		}
		return
	}
	d := &PendingUnmount{UID: uid, Path: m.dirs.Pod(uid), Since: now, Tries: 1}
	why, complete := explainRemovalError(err, searchTimeout)
	d.Message = why + "; podd retries and deletes nothing until then"
	if old != nil && !complete && strings.HasPrefix(old.Message, err.Error()) {
		d.Message = old.Message // on a busy machine, this search may have been too short
	}
	delay := firstRetry
	if old != nil {
		d.Since, d.Tries = old.Since, old.Tries+1
		delay = min(lastRetry, firstRetry<<min(old.Tries, 10))
	}
	d.RetryAt = now.Add(delay)
	m.mu.Lock()
	m.updateState(uid, func(p *podVolumes) { p.pending = d })
	m.mu.Unlock()
	if old == nil || old.Message != d.Message { // log once, not at each attempt
		m.log.Warn("cannot remove pod directory: retrying", "uid", uid, "path", d.Path, "reason", d.Message)
	}
	if old == nil {
		m.reportPending(uid, d.Message)
	}
	m.poke.Notify()
}

// reportPending records an event for a new pending unmount. For a pod that is no longer
// known, the event has the UID only.
func (m *Mounter) reportPending(uid pod.UID, message string) {
	if m.options.Events == nil {
		return
	}
	m.mu.Lock()
	p := m.stateOf(uid).pod
	m.mu.Unlock()
	if p == nil {
		p = &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, Name: string(uid)}}
	}
	m.options.Events.Event(p, v1.EventTypeWarning, "FailedUnMount", message) // upstream's reason
}

// explainRemovalError says what prevents the removal, which process holds the mount, and what
// to do. complete is false if the search for the process ran out of time.
func explainRemovalError(err error, search time.Duration) (text string, complete bool) {
	path := blockingMount(err)
	if path == "" {
		return err.Error(), true
	}
	holder, complete := findHolder(path, search)
	if holder != "" {
		return err.Error() + ": " + holder + "; stop it or unmount by hand", true
	}
	return err.Error() + "; the process that holds it was not found", complete
}

// blockingMount returns the mount point that an error is about; empty for other errors.
func blockingMount(err error) string {
	if failed, ok := errors.AsType[*unmountError](err); ok {
		return failed.path
	}
	if mount, ok := errors.AsType[*wipe.MountError](err); ok {
		return mount.Path
	}
	return ""
}

package usage

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

const (
	// period is upstream's between two looks of its eviction manager
	// (evictionMonitoringPeriod in pkg/kubelet/kubelet.go).
	period = 10 * time.Second
	// share: a look that took t is not repeated before share·t.
	share = 50
	// places is how many looks go on at a time; one that takes longer than longLook
	// does not count, for it must not keep others waiting.
	places   = 2
	longLook = time.Second
	// grace is what containers get, upstream's immediateEvictionGracePeriodSeconds.
	grace = time.Second
	// signal is the reason's name in the kubelet's metrics.
	signal = "emptydirfs.limit"
)

// Limits watches emptyDirs. All methods are safe for concurrent use.
type Limits struct {
	path   func(p *v1.Pod, volume string) (string, error)
	log    *slog.Logger
	size   func(ctx context.Context, dir string, enough int64) (int64, error)
	places chan struct{}
}

// New returns Limits on volumes whose directories path names. It starts nothing.
func New(path func(p *v1.Pod, volume string) (string, error), log *slog.Logger) *Limits {
	return &Limits{path: path, log: log, size: treeSize, places: make(chan struct{}, places)}
}

// limit is one volume's.
type limit struct {
	volume string
	bytes  int64
	text   string    // as the pod has it
	next   time.Time // when it is looked at
	said   string    // the last error
}

func limitsOf(p *v1.Pod) []limit {
	var out []limit
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		e := v.EmptyDir
		if e == nil || e.Medium != v1.StorageMediumDefault || e.SizeLimit == nil || e.SizeLimit.Sign() != 1 {
			continue // upstream does not enforce a limit of 0 either
		}
		out = append(out, limit{volume: v.Name, bytes: e.SizeLimit.Value(), text: e.SizeLimit.String()})
	}
	return out
}

// Limited says whether the pod has something to watch.
func (*Limits) Limited(p *v1.Pod) bool { return limitsOf(p) != nil }

// Watch blocks until one of the pod's emptyDirs exceeds its limit, and says so in
// upstream's words; or until ctx ends, at once for a pod without a limit: then
// exceeded is false. The directories need not exist yet.
func (l *Limits) Watch(ctx context.Context, p *v1.Pod) (e pod.Eviction, exceeded bool) {
	limits := limitsOf(p)
	for i := range limits {
		limits[i].next = time.Now().Add(period)
	}
	for len(limits) > 0 {
		due := &limits[0]
		for i := range limits {
			if limits[i].next.Before(due.next) {
				due = &limits[i]
			}
		}
		if !sleepUntil(ctx, due.next) {
			break
		}
		used, took, err := l.look(ctx, p, due)
		if used > due.bytes {
			g := grace
			return pod.Eviction{
				Signal: signal, Grace: &g, Message: fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", due.volume, due.text),
			}, true
		}
		if err != nil && ctx.Err() == nil && err.Error() != due.said {
			due.said = err.Error()
			l.log.Warn("cannot measure an emptyDir: its sizeLimit is not enforced meanwhile",
				"pod", p.Namespace+"/"+p.Name, "uid", p.UID, "volume", due.volume, "error", err)
		}
		due.next = time.Now().Add(max(period, share*took))
	}
	return pod.Eviction{}, false
}

// look measures one volume, in its turn; took is without waiting for that.
func (l *Limits) look(ctx context.Context, p *v1.Pod, of *limit) (used int64, took time.Duration, err error) {
	dir, err := l.path(p, of.volume)
	if err != nil {
		return 0, 0, err
	}
	select {
	case l.places <- struct{}{}:
	case <-ctx.Done():
		return 0, 0, context.Cause(ctx)
	}
	leave := sync.OnceFunc(func() { <-l.places })
	defer leave()
	defer time.AfterFunc(longLook, leave).Stop()
	began := time.Now()
	used, err = l.size(ctx, dir, of.bytes)
	return used, time.Since(began), err
}

// sleepUntil is false if ctx ended before.
func sleepUntil(ctx context.Context, at time.Time) bool {
	t := time.NewTimer(time.Until(at))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

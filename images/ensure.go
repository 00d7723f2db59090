package images

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/imageref"
	"podd/internal/pod"
)

// request is a container's request for one image.
type request struct {
	key    imageKey
	pod    *v1.Pod
	image  string
	policy v1.PullPolicy
}

// requestsOf returns the requests of a container: first the images of the image volumes
// that it mounts, in the order of its volumeMounts and each once, then its own image.
func requestsOf(p *v1.Pod, c *v1.Container) []request {
	var out []request
	asked := map[string]bool{}
	for i := range c.VolumeMounts {
		name := c.VolumeMounts[i].Name
		source := imageVolume(p, name)
		if source == nil || asked[name] {
			continue
		}
		asked[name] = true
		out = append(out, request{imageKey{p.UID, c.Name, name}, p, source.Reference, source.PullPolicy})
	}
	return append(out, request{imageKey{p.UID, c.Name, ""}, p, c.Image, c.ImagePullPolicy})
}

func imageVolume(p *v1.Pod, name string) *v1.ImageVolumeSource {
	for i := range p.Spec.Volumes {
		if p.Spec.Volumes[i].Name == name {
			return p.Spec.Volumes[i].Image
		}
	}
	return nil
}

// Ensure reports whether the images that a container needs are present, according to their
// pull policies: its own, and those of the image volumes that it mounts. It starts the
// pulls that are due, all at the same time. It blocks for at most one local lookup per
// image, and for none while a pull is in progress. A state that is not ready carries the
// kubelet's reason and message. A pull that ends wakes the pod; for its progress, the pod
// may call Ensure at RetryAt, if set.
//
// With policy Always each successful pull serves one start of a container; the next
// start checks the registry again. It returns an error only if the runtime does not
// respond.
func (l *Puller) Ensure(ctx context.Context, p *v1.Pod, c *v1.Container) (pod.ImageState, error) {
	requests := requestsOf(p, c)
	states := make([]pod.ImageState, len(requests))
	for i, a := range requests {
		var err error
		if states[i], err = l.ensureOne(ctx, a); err != nil {
			return pod.ImageState{}, err
		}
	}
	out := combine(requests, states)
	if out.Ready {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, a := range requests {
			l.dropPendingLocked(a.key, errNobodyWaits)
		}
	}
	return out, nil
}

// combine combines the states of all images that a container needs; its own is the last. If
// several cannot be pulled, it reports the last volume's, as the kubelet does, which pulls
// the container's own image after those.
func combine(requests []request, states []pod.ImageState) pod.ImageState {
	own := len(states) - 1
	out, retry := states[own], states[own].RetryAt
	for _, st := range states[:own] {
		retry = earliest(retry, st.RetryAt)
		if rank(st) >= rank(out) {
			out = st
		}
	}
	out.RetryAt = retry
	if rank(out) > 0 {
		return out
	}
	out = states[own]
	for i, a := range requests[:own] {
		if out.Volumes == nil {
			out.Volumes = make(map[string]string)
		}
		out.Volumes[a.key.volume] = states[i].Ref
	}
	return out
}

// rank orders states by how they block a container: ready, in progress, failed.
func rank(st pod.ImageState) int {
	switch {
	case st.Ready:
		return 0
	case st.Reason == pod.ReasonContainerCreating:
		return 1
	default:
		return 2
	}
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// ensureOne is Ensure for one image. A present image is remembered until the container has
// everything that it needs.
func (l *Puller) ensureOne(ctx context.Context, a request) (pod.ImageState, error) {
	ref, err := imageref.WithTag(a.image)
	if err != nil {
		msg := fmt.Sprintf("Failed to apply default image tag %q: %v", a.image, err)
		return l.reportState(a, pod.ImageState{Reason: pod.ReasonInvalidImageName, Message: msg}, "InspectFailed", msg), nil
	}
	if st, ok := l.pullState(ctx, a); ok {
		return st, nil
	}
	if a.policy == v1.PullAlways {
		return l.pull(a, ref, "unknown"), nil
	}
	importing := l.cfg.Archives != nil && l.cfg.Archives.Importing() // before the lookup, which may come too early
	img, err := l.cfg.Runtime.ImageStatus(ctx, ref)
	switch {
	case errors.Is(err, pod.ErrUnavailable) || ctx.Err() != nil:
		return pod.ImageState{}, fmt.Errorf("look up image %q: %w", a.image, err)
	case err != nil:
		msg := fmt.Sprintf("Failed to inspect image %q: %v", a.image, err)
		return l.reportState(a, pod.ImageState{Reason: pod.ReasonImageInspectError, Message: truncateMessage(msg), RetryAt: time.Now().Add(inspectRetry)}, "InspectFailed", msg), nil
	case img != nil:
		if err := l.recordInterruptedPulls(ctx); err != nil {
			return pod.ImageState{}, fmt.Errorf("look up images that were being pulled: %w", err)
		}
		may, unknown, err := l.mayUse(ctx, a, ref, img)
		switch {
		case err != nil:
			return pod.ImageState{}, fmt.Errorf("look up what the pod has used: %w", err)
		case !may && unknown != nil:
			return l.awaitSecrets(a, unknown), nil
		case !may:
			return l.pullPresent(a, ref), nil
		}
		l.recordPresent(a, img)
		l.metrics.countRequest(a.policy, "true", "false")
		l.event(a.pod, a.key, v1.EventTypeNormal, "Pulled", fmt.Sprintf("Container image %q already present on machine and can be accessed by the pod", a.image))
		return readyState(img), nil
	case a.policy == v1.PullNever:
		if importing {
			if st, wait := l.awaitImport(a); wait {
				return st, nil
			}
		}
		l.metrics.countRequest(a.policy, "false", "unknown")
		return l.neverPullState(a), nil
	}
	return l.pull(a, ref, "false"), nil
}

// awaitImport returns the state of an image that must not be pulled but may be among those
// that are being imported, as on a first start. wait is false once that has taken too long,
// or after the pod was told that there is none. Imported wakes the pod.
func (l *Puller) awaitImport(a request) (st pod.ImageState, wait bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w, now := l.pendingLocked(a), time.Now()
	if w.importWaitSince.IsZero() {
		w.importWaitSince = now
	}
	if w.reported.Reason != "" || now.Sub(w.importWaitSince) >= importTimeout {
		return st, false
	}
	st = waitingState(w.reported)
	st.RetryAt = now.Add(importPollInterval)
	return st, true
}

// neverPullState returns the state of an image that is missing and must not be pulled.
func (l *Puller) neverPullState(a request) pod.ImageState {
	msg := fmt.Sprintf("Container image %q is not present with pull policy of Never", a.image)
	return l.reportState(a, pod.ImageState{Reason: pod.ReasonErrImageNeverPull, Message: msg, RetryAt: time.Now().Add(inspectRetry)}, pod.ReasonErrImageNeverPull, msg)
}

// pullState returns the state of a pull in progress or a finished pull.
func (l *Puller) pullState(ctx context.Context, a request) (pod.ImageState, bool) {
	l.mu.Lock()
	w := l.pending[a.key]
	switch {
	case w == nil:
		l.mu.Unlock()
		return pod.ImageState{}, false
	case w.image != a.image: // an in-place update of the image
		l.dropPendingLocked(a.key, errNobodyWaits)
		l.mu.Unlock()
		return pod.ImageState{}, false
	case w.op != nil:
		st, busy := waitingState(w.reported), l.pullProgressLocked(w.op)
		l.mu.Unlock()
		return l.withProgress(ctx, st, a.image, busy), true
	case w.done == nil:
		l.mu.Unlock()
		return pod.ImageState{}, false
	}
	r := w.done
	if r.err == nil {
		l.mu.Unlock()
		return readyState(r.image), true
	}
	w.done = nil
	reason, msg := pullFailure(w.image, r.err)
	w.reported = pod.ImageState{Reason: reason, Message: msg, RetryAt: r.retryAt}
	st := w.reported
	l.mu.Unlock()
	l.recordFailed(a, reason)
	return st, true
}

// pull joins or starts a pull, or returns the back-off.
func (l *Puller) pull(a request, ref, present string) pod.ImageState {
	l.mu.Lock()
	w := l.pendingLocked(a)
	if b, ok := l.backoff[backoffKey{a.key.uid, a.image}]; ok && time.Now().Before(b.until()) {
		msg := fmt.Sprintf("Back-off pulling image %q", a.image)
		first := w.reported.Reason != pod.ReasonImagePullBackOff || !w.reported.RetryAt.Equal(b.until())
		w.reported = pod.ImageState{Reason: pod.ReasonImagePullBackOff, Message: truncateMessage(msg + ": " + b.message), RetryAt: b.until()}
		st := w.reported
		l.mu.Unlock()
		if first {
			l.event(a.pod, a.key, v1.EventTypeNormal, "BackOff", msg)
			l.recordFailed(a, pod.ReasonImagePullBackOff)
		}
		return st
	}
	l.joinLocked(a.key, w, ref)
	st := waitingState(w.reported)
	if st.Reason == pod.ReasonContainerCreating {
		st.RetryAt = time.Now().Add(progressAfter)
	}
	l.mu.Unlock()
	l.metrics.countRequest(a.policy, present, "true")
	l.event(a.pod, a.key, v1.EventTypeNormal, "Pulling", fmt.Sprintf("Pulling image %q", a.image))
	l.wake() // last, so that no result precedes its Pulling event
	return st
}

// reportState records a state that no pull will change, and emits its event once.
func (l *Puller) reportState(a request, st pod.ImageState, event, msg string) pod.ImageState {
	l.mu.Lock()
	w := l.pendingLocked(a)
	first := w.reported.Reason != st.Reason || w.reported.Message != st.Message
	w.reported = st
	l.mu.Unlock()
	if first {
		l.event(a.pod, a.key, v1.EventTypeWarning, event, truncateMessage(msg))
		l.recordFailed(a, st.Reason)
	}
	return st
}

// recordPresent records a present image.
func (l *Puller) recordPresent(a request, img *pod.Image) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pendingLocked(a).done = &result{image: img}
}

func (l *Puller) pendingLocked(a request) *pendingImage {
	w := l.pending[a.key]
	if w == nil {
		w = &pendingImage{pod: a.pod, image: a.image}
		l.pending[a.key] = w
	}
	return w
}

// recordFailed emits the event that a container cannot be created. It does not matter whether the
// image is the container's own or a volume's.
func (l *Puller) recordFailed(a request, reason string) {
	if l.cfg.Recorder != nil {
		l.cfg.Recorder.ContainerEvent(a.pod, a.key.container, v1.EventTypeWarning, "Failed", "Error: "+reason)
	}
}

// event emits an event for a container's image, or for a volume's, which the kubelet
// attributes to the pod.
func (l *Puller) event(p *v1.Pod, key imageKey, eventType, reason, message string) {
	switch {
	case l.cfg.Recorder == nil:
	case key.volume != "":
		l.cfg.Recorder.Event(p, eventType, reason, message)
	default:
		l.cfg.Recorder.ContainerEvent(p, key.container, eventType, reason, message)
	}
}

func readyState(img *pod.Image) pod.ImageState {
	return pod.ImageState{Ready: true, Ref: img.ID, UID: img.UID, Username: img.Username}
}

// waitingState is the state while a pull is in progress: the previous one, as in the
// kubelet, or ContainerCreating.
func waitingState(reported pod.ImageState) pod.ImageState {
	if reported.Reason == "" {
		reported.Reason = pod.ReasonContainerCreating
	}
	reported.RetryAt = time.Time{}
	return reported
}

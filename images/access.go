package images

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// Records say who may use the images of the node. *records.Store implements them. No method
// may block for long.
type Records interface {
	RecordPullIntent(image string) error
	RecordImagePulled(image, id string, by *pod.RegistryAuth)
	RecordImagePullFailed(image string)
	MayUse(image, id string, own func() []pod.RegistryAuth) bool
	InterruptedPulls() []string
	RecordInterruptedPull(image, id string) error
}

// mayUse reports whether a pod may use an image that is on the node. If not, unknown names
// those of the pod's Secrets that might allow it but that the apiserver has not answered
// about. Until it answers, for example if podd was restarted while the apiserver is away, a
// pod may use what it has used before. The error comes from a runtime that does not
// respond.
func (l *Puller) mayUse(ctx context.Context, a request, ref string, img *pod.Image) (may bool, unknown, err error) {
	if l.cfg.Records == nil {
		return true, nil, nil
	}
	may = l.cfg.Records.MayUse(ref, img.ID, func() (own []pod.RegistryAuth) {
		if l.cfg.Keyring != nil {
			own, unknown = l.cfg.Keyring.PodCredentials(ref, a.pod)
		}
		return own
	})
	if may || unknown == nil {
		return may, nil, nil
	}
	if l.cfg.PodUsedImage != nil {
		may, err = l.cfg.PodUsedImage(ctx, a.key.uid, img.ID)
	}
	return may, unknown, err
}

// awaitSecrets returns the state of a present image while it is not known whether the pod
// has credentials for it. An answer of the apiserver wakes the pod.
func (l *Puller) awaitSecrets(a request, unknown error) pod.ImageState {
	l.mu.Lock()
	defer l.mu.Unlock()
	st := waitingState(l.pendingLocked(a).reported)
	if !pod.IsObjectPending(unknown) {
		st = pod.ImageState{Reason: pod.ReasonContainerCreating, Message: truncateMessage(fmt.Sprintf("Waiting for the credentials to use image %q: %v", a.image, unknown))}
	}
	st.RetryAt = time.Now().Add(inspectRetry)
	return st
}

// pullPresent pulls an image that is on the node with the pod's own credentials, which
// verifies them. With policy Never it acts as if the image were not there, because even its
// presence must not show.
func (l *Puller) pullPresent(a request, ref string) pod.ImageState {
	if a.policy == v1.PullNever {
		l.metrics.countRequest(a.policy, "true", "true")
		return l.neverPullState(a)
	}
	return l.pull(a, ref, "true")
}

// recordPullIntent records that a pull begins. It returns a function that records the end: with the
// image, or nil if there is none, and with the credentials that were used. An image that an
// archive of the image directory holds is not pulled.
func (l *Puller) recordPullIntent(ref string) (ended func(img *pod.Image, by *pod.RegistryAuth), err error) {
	if l.cfg.Records == nil || l.cfg.Archives != nil && l.cfg.Archives.HasImage(ref) {
		return func(*pod.Image, *pod.RegistryAuth) {}, nil
	}
	if err := l.cfg.Records.RecordPullIntent(ref); err != nil {
		return nil, err
	}
	return func(img *pod.Image, by *pod.RegistryAuth) {
		if img == nil {
			l.cfg.Records.RecordImagePullFailed(ref)
			return
		}
		l.cfg.Records.RecordImagePulled(ref, img.ID, by)
	}, nil
}

// recordInterruptedPulls records, once, the images that an earlier podd began to pull and
// that are there: no pod may use them by this name or any other without its credentials. The
// error comes from a runtime that does not respond.
func (l *Puller) recordInterruptedPulls(ctx context.Context) error {
	if l.cfg.Records == nil {
		return nil
	}
	l.mu.Lock()
	done := l.interruptedRecorded
	l.mu.Unlock()
	if done {
		return nil
	}
	for _, image := range l.cfg.Records.InterruptedPulls() {
		img, err := l.cfg.Runtime.ImageStatus(ctx, image)
		if err != nil {
			return err
		}
		if img == nil {
			continue
		}
		if err := l.cfg.Records.RecordInterruptedPull(image, img.ID); err != nil {
			l.log.Warn("cannot record an image that was being pulled when podd ended", "image", image, "error", err)
		}
	}
	l.mu.Lock()
	l.interruptedRecorded = true
	l.mu.Unlock()
	return nil
}

package images

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// Records are who may use the images of the node, implemented by *records.Store. No method
// may block for long.
type Records interface {
	Begin(image string) error
	Pulled(image, id string, by *pod.RegistryAuth)
	Failed(image string)
	May(image, id string, own func() []pod.RegistryAuth) bool
	Interrupted() []string
	Arrived(image, id string) error
}

// mayUse reports whether a pod may use an image that is on the node.
func (l *Puller) mayUse(a request, ref string, img *pod.Image) bool {
	if l.cfg.Records == nil {
		return true
	}
	return l.cfg.Records.May(ref, img.ID, func() []pod.RegistryAuth {
		if l.cfg.Keyring == nil {
			return nil
		}
		return l.cfg.Keyring.Own(ref, a.pod)
	})
}

// pullPresent pulls an image that is on the node by the pod's own credentials, which is
// how these are verified. With policy Never it is as if the image were not there, since
// whether it is must not show either.
func (l *Puller) pullPresent(a request, ref string) pod.ImageState {
	if a.policy == v1.PullNever {
		l.metrics.asked(a.policy, "true", "true")
		return l.absent(a)
	}
	return l.pull(a, ref, "true")
}

// begin records that a pull begins, and returns what records its end: with the image, or
// nil if there is none, and by whose credentials. What an archive of the image directory
// holds is not pulled.
func (l *Puller) begin(ref string) (ended func(img *pod.Image, by *pod.RegistryAuth), err error) {
	if l.cfg.Records == nil || l.cfg.Archives != nil && l.cfg.Archives.Holds(ref) {
		return func(*pod.Image, *pod.RegistryAuth) {}, nil
	}
	if err := l.cfg.Records.Begin(ref); err != nil {
		return nil, err
	}
	return func(img *pod.Image, by *pod.RegistryAuth) {
		if img == nil {
			l.cfg.Records.Failed(ref)
			return
		}
		l.cfg.Records.Pulled(ref, img.ID, by)
	}, nil
}

// adopt records, once, the images whose pulls an earlier podd began and which are there: no
// pod may use them by this name or any other without its credentials. The error is of a
// runtime that does not respond.
func (l *Puller) adopt(ctx context.Context) error {
	if l.cfg.Records == nil {
		return nil
	}
	l.mu.Lock()
	done := l.adopted
	l.mu.Unlock()
	if done {
		return nil
	}
	for _, image := range l.cfg.Records.Interrupted() {
		img, err := l.cfg.Runtime.ImageStatus(ctx, image)
		if err != nil {
			return err
		}
		if img == nil {
			continue
		}
		if err := l.cfg.Records.Arrived(image, img.ID); err != nil {
			l.log.Warn("cannot record an image that was being pulled when podd ended", "image", image, "error", err)
		}
	}
	l.mu.Lock()
	l.adopted = true
	l.mu.Unlock()
	return nil
}

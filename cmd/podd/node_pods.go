package main

import (
	"podd/images"
	"podd/internal/pod"
)

// podImages lets the agent end the back-off of a pod's pulls where the puller
// can.
type podImages struct{ *images.Puller }

func (i podImages) Retry(uid pod.UID) {
	if p, ok := any(i.Puller).(interface{ Retry(uid pod.UID) }); ok {
		p.Retry(uid)
	}
}

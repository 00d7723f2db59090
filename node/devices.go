package node

import (
	"time"

	"podd/internal/pod"
)

// deviceWaker implements devices.Waker.
type deviceWaker struct{ *runtimeParts }

// Changed wakes a pod.
func (u deviceWaker) Changed(uid pod.UID) { u.agent.Wake(uid, time.Time{}) }

// RetryAdmission retries the admission of pods that wait for it.
func (u deviceWaker) RetryAdmission() { u.agent.RetryAdmission() }

// NodeChanged makes the registrar write the Node's status, if there is a registrar. Otherwise
// the first status includes the resources.
func (u deviceWaker) NodeChanged() {
	if m := u.membership; m != nil && m.registrar != nil {
		m.registrar.Wake()
	}
}

package node

import (
	"time"

	"podd/internal/pod"
)

// deviceUser implements devices.Waker.
type deviceUser struct{ *parts }

// Changed wakes a pod.
func (u deviceUser) Changed(uid pod.UID) { u.agent.Wake(uid, time.Time{}) }

// AdmitAgain retries the admission of pods that wait for it.
func (u deviceUser) AdmitAgain() { u.agent.AdmitAgain() }

// NodeChanged makes the registrar write the Node's status, if there is a registrar. Otherwise
// the first status includes the resources.
func (u deviceUser) NodeChanged() {
	if m := u.membership; m != nil && m.registrar != nil {
		m.registrar.Poke()
	}
}

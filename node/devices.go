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

// NodeChanged has the Node's status written, if there is one: its first has the resources.
func (u deviceUser) NodeChanged() {
	if m := u.membership; m != nil && m.registrar != nil {
		m.registrar.Poke()
	}
}

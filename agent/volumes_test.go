package agent_test

import (
	"context"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// disk is the node's volumes: they are set up at once.
type disk struct{ *node }

func (disk) Follow(*v1.Pod)                     {}
func (disk) Stopping(pod.UID)                   {}
func (disk) Hold(*v1.Pod, *v1.Container) func() { return func() {} }

func (d disk) Ensure(ctx context.Context, p *v1.Pod) (pod.VolumeState, error) {
	if err := d.lacks(p); err != nil {
		return pod.VolumeState{}, err
	}
	return pod.VolumeState{Ready: true}, d.SetUp(ctx, p)
}

// AbortRequests has the pod's containers end that wait for a dead server.
func (d disk) AbortRequests(ctx context.Context, uid pod.UID, tell func(string)) {
	name, _, _ := strings.Cut(string(uid), "-")
	d.disk.Lock()
	dead := d.dead[name]
	d.aborting[name]++
	d.events[name+" AbortRequests"]++
	d.disk.Unlock()
	if dead {
		tell("its server does not respond")
		d.faults.Release("StopContainer " + name)
	}
	<-ctx.Done()
	d.disk.Lock()
	defer d.disk.Unlock()
	d.aborting[name]--
}

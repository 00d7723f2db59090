package csi

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"podd/internal/pod"
)

// republishPeriod is the time between two checks of a volume. podd publishes the volume
// again if its driver asks for that (requiresRepublish), and reads the claim of a cluster's
// volume, which may wait for the node to expand the mounted volume and cannot be watched.
// The kubelet does both at each sync of a pod, about once a minute.
const republishPeriod = time.Minute

// republished is a volume that podd looks after periodically.
type republished struct {
	volume pod.CSIVolume
	plan   *plan
	timer  *time.Timer
}

// Follow makes podd look after a volume that an earlier podd has set up: publish it again
// periodically, if its driver asks for that, and expand it, if its claim does. It does not
// block. While podd does not know what the driver asks for, Follow does nothing; it is
// called again once podd does.
func (v *Volumes) Follow(volume pod.CSIVolume) {
	known := func(driver string) (*storagev1.CSIDriver, error) { return v.objects.KnownCSIDriver(volume.Pod, driver) }
	if p, err := v.planBy(&volume, known); err == nil && (p.republish || p.resizes()) && p.isSetUp() {
		v.follow(volume, p)
	}
}

func (v *Volumes) follow(volume pod.CSIVolume, p *plan) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !p.republish && !p.resizes() || v.republished[p.dir] != nil {
		return
	}
	r := &republished{volume: volume, plan: p}
	v.republished[p.dir] = r
	r.timer = time.AfterFunc(v.period, func() { v.loop.Go(func(ctx context.Context) { v.lookAfter(ctx, r) }) })
}

// take stops following a volume, and says whether it was still followed.
func (v *Volumes) take(r *republished) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.republished[r.plan.dir] != r {
		return false
	}
	delete(v.republished, r.plan.dir)
	return true
}

// lookAfter does the periodic work for a volume, unless it is gone, and follows it again.
func (v *Volumes) lookAfter(ctx context.Context, r *republished) {
	if !v.take(r) {
		return
	}
	volume := r.volume
	if r.plan.republish {
		v.publishAgain(ctx, volume)
	}
	if r.plan.resizes() {
		if err := v.growMounted(ctx, volume); err != nil && ctx.Err() == nil {
			v.log.Warn("cannot expand a volume: it stays as it is", "driver", volume.Driver(), "volume", volume.Name, "error", err)
			v.events.Event(volume.Pod, v1.EventTypeWarning, "VolumeResizeFailed",
				fmt.Sprintf("NodeExpandVolume.NodeExpandVolume failed for volume %q : %v", volume.Persistent.Name, err)) // upstream's
		}
	}
	if ctx.Err() == nil {
		v.Follow(volume)
	}
}

// publishAgain publishes a volume again; if that fails, the mounted volume stays.
func (v *Volumes) publishAgain(ctx context.Context, volume pod.CSIVolume) {
	if _, err := v.setUp(ctx, volume, true); err != nil && ctx.Err() == nil {
		v.log.Warn("cannot publish a volume again: it stays as it is", "driver", volume.Driver(), "volume", volume.Name,
			"pod", volume.Pod.Namespace+"/"+volume.Pod.Name, "error", err)
	}
}

// stopRepublish undoes follow.
func (v *Volumes) stopRepublish(dir string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if r := v.republished[dir]; r != nil {
		r.timer.Stop()
		delete(v.republished, dir)
	}
}

func (v *Volumes) stopRepublishing() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for dir, r := range v.republished {
		r.timer.Stop()
		delete(v.republished, dir)
	}
}

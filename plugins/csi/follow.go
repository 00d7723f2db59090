package csi

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"podd/internal/pod"
)

// defaultFollowPeriod is the time between two checks of a volume. podd publishes the volume
// again if its driver asks for that (requiresRepublish), and reads the claim of a cluster's
// volume, which may wait for the node to expand the mounted volume and cannot be watched.
// The kubelet does both at each sync of a pod, about once a minute.
const defaultFollowPeriod = time.Minute

// followedVolume is a volume that podd checks periodically.
type followedVolume struct {
	volume pod.CSIVolume
	plan   *plan
	timer  *time.Timer
}

// Adopt makes podd look after a volume that an earlier podd has set up: publish it again
// periodically, if its driver asks for that, and expand it, if its claim does. It does not
// block. While podd does not know what the driver asks for, Adopt does nothing; it is
// called again once podd does.
func (v *Volumes) Adopt(volume pod.CSIVolume) {
	known := func(driver string) (*storagev1.CSIDriver, error) { return v.objects.KnownCSIDriver(volume.Pod, driver) }
	if p, err := v.planBy(&volume, known); err == nil && (p.republish || p.resizable()) && p.isSetUp() {
		v.follow(volume, p)
	}
}

func (v *Volumes) follow(volume pod.CSIVolume, p *plan) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !p.republish && !p.resizable() || v.followed[p.dir] != nil {
		return
	}
	r := &followedVolume{volume: volume, plan: p}
	v.followed[p.dir] = r
	r.timer = time.AfterFunc(v.followPeriod, func() { v.loop.Go(func(ctx context.Context) { v.checkFollowed(ctx, r) }) })
}

// dequeue takes a volume off the followed ones, and says whether it was still followed.
func (v *Volumes) dequeue(r *followedVolume) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.followed[r.plan.dir] != r {
		return false
	}
	delete(v.followed, r.plan.dir)
	return true
}

// checkFollowed does the periodic work for a volume, unless it is gone, and follows it again.
func (v *Volumes) checkFollowed(ctx context.Context, r *followedVolume) {
	if !v.dequeue(r) {
		return
	}
	volume := r.volume
	if r.plan.republish {
		v.publishAgain(ctx, volume)
	}
	if r.plan.resizable() {
		if err := v.expandMounted(ctx, volume); err != nil && ctx.Err() == nil {
			v.log.Warn("cannot expand a volume: it stays as it is", "driver", volume.Driver(), "volume", volume.Name, "error", err)
			v.events.Event(volume.Pod, v1.EventTypeWarning, "VolumeResizeFailed",
				fmt.Sprintf("NodeExpandVolume.NodeExpandVolume failed for volume %q : %v", volume.Persistent.Name, err)) // upstream's
		}
	}
	if ctx.Err() == nil {
		v.Adopt(volume)
	}
}

// publishAgain publishes a volume again; if that fails, the mounted volume stays.
func (v *Volumes) publishAgain(ctx context.Context, volume pod.CSIVolume) {
	if _, err := v.setUp(ctx, volume, true); err != nil && ctx.Err() == nil {
		v.log.Warn("cannot publish a volume again: it stays as it is", "driver", volume.Driver(), "volume", volume.Name,
			"pod", volume.Pod.Namespace+"/"+volume.Pod.Name, "error", err)
	}
}

// unfollow undoes follow.
func (v *Volumes) unfollow(dir string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if r := v.followed[dir]; r != nil {
		r.timer.Stop()
		delete(v.followed, dir)
	}
}

func (v *Volumes) unfollowAll() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for dir, r := range v.followed {
		r.timer.Stop()
		delete(v.followed, dir)
	}
}

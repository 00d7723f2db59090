package csi

import (
	"context"
	"time"

	"podd/internal/pod"
)

// republishPeriod is how often a volume is published again if its driver asks for that
// (requiresRepublish); the kubelet does so at each sync of a pod, about once a minute.
const republishPeriod = time.Minute

// republished is a volume that is published periodically.
type republished struct{ timer *time.Timer }

// Follow has a volume that an earlier podd has set up published periodically, if its
// driver asks for that. It does not block.
func (v *Volumes) Follow(volume pod.CSIVolume) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // what is not known yet is looked for the next time
	if p, err := v.plan(ctx, &volume); err == nil && p.republish && p.isSetUp() {
		v.follow(volume, p)
	}
}

func (v *Volumes) follow(volume pod.CSIVolume, p *plan) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !p.republish || v.republished[p.dir] != nil {
		return
	}
	r := &republished{}
	v.republished[p.dir] = r
	r.timer = time.AfterFunc(republishPeriod, func() {
		v.mu.Lock()
		mine := v.republished[p.dir] == r
		if mine {
			delete(v.republished, p.dir) // setUp schedules the next
		}
		v.mu.Unlock()
		if mine {
			v.publishAgain(volume)
		}
	})
}

// publishAgain publishes a volume again; if that fails, what is mounted stays.
func (v *Volumes) publishAgain(volume pod.CSIVolume) {
	_, err := v.setUp(context.Background(), volume, true)
	if err != nil {
		v.log.Warn("cannot publish a volume again: it stays as it is", "driver", volume.Driver(), "volume", volume.Name,
			"pod", volume.Pod.Namespace+"/"+volume.Pod.Name, "error", err)
		v.Follow(volume)
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

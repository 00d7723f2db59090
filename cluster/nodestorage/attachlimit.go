package nodestorage

import (
	"context"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"podd/internal/logonce"
)

// syncLimitPollers asks each registered driver how many volumes can be attached, as often as the
// driver wants (KEP-4876), and stops asking drivers that have gone. The goroutines that it
// starts run in work, until ctx ends.
func (d *CSINodeUpdater) syncLimitPollers(ctx context.Context, work *sync.WaitGroup) {
	registered := map[string]bool{}
	for _, driver := range d.cfg.Registered() {
		name := driver.Name
		registered[name] = true
		if d.limitPollers[name] == nil {
			within, cancel := context.WithCancel(ctx)
			d.limitPollers[name] = cancel
			work.Go(func() { d.pollLimit(within, name) })
		}
	}
	for name, cancel := range d.limitPollers {
		if !registered[name] {
			cancel()
			delete(d.limitPollers, name)
		}
	}
}

// pollLimit asks a driver as often as its CSIDriver says, until ctx ends. While the apiserver
// is away, the last known period applies.
func (d *CSINodeUpdater) pollLimit(ctx context.Context, name string) {
	periods := make(chan time.Duration)
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() {
		d.cfg.Client.FollowCSIDriver(ctx, name, func(all []*storagev1.CSIDriver, err error) {
			if err != nil {
				return
			}
			select {
			case periods <- updatePeriodOf(all):
			case <-ctx.Done():
			}
		})
	})
	var period time.Duration
	ticker := time.NewTicker(time.Hour)
	ticker.Stop()
	defer ticker.Stop()
	var failure logonce.Failure
	for {
		select {
		case next := <-periods:
			if next == period {
				continue
			}
			if period = next; period > 0 {
				ticker.Reset(period)
			} else {
				ticker.Stop()
			}
		case <-ticker.C:
			err := d.cfg.RefreshAttachLimit(ctx, name)
			if failure.IsNew(err) && ctx.Err() == nil {
				d.cfg.Log.Warn("cannot ask a CSI driver how many volumes can be attached: the cluster goes by what it said last", "driver", name, "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// updatePeriodOf returns how often the driver of a CSIDriver wants to be asked; 0 for never. An
// apiserver allows no less than ten seconds.
func updatePeriodOf(all []*storagev1.CSIDriver) time.Duration {
	if len(all) == 0 || all[0].Spec.NodeAllocatableUpdatePeriodSeconds == nil {
		return 0
	}
	return time.Duration(*all[0].Spec.NodeAllocatableUpdatePeriodSeconds) * time.Second
}

package csi

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	storagev1 "k8s.io/api/storage/v1"
)

func republishes(s *storagev1.CSIDriverSpec) { yes := true; s.RequiresRepublish = &yes }

// wantPublished waits until the driver has published that often.
func wantPublished(t *testing.T, f *fake, times int) {
	t.Helper()
	eventually(t, "the driver publishes it again", func() bool {
		return len(slices.DeleteFunc(f.heard(), func(name string) bool { return name != "Publish" })) >= times
	})
}

func TestAVolumeIsPublishedAgainEachPeriodAlsoAfterAFailure(t *testing.T) {
	n := newNode(t, "", func(v *Volumes) { v.followPeriod = 5 * time.Millisecond })
	f := newFake(t, driverName).serve().register(n)
	n.has(driverName)
	n.allow(driverName, republishes, storagev1.VolumeLifecycleEphemeral)
	v := n.inline("a", driverName)
	n.mustSetUp(v)
	wantPublished(t, f, 3)
	f.on("NodePublishVolume", func(context.Context) error { return status.Error(codes.Internal, "not now") })
	wantPublished(t, f, len(f.heard())+3)
	f.on("NodePublishVolume", nil)
	n.mustTearDown(v)
	calls := f.heard()
	if calls[len(calls)-1] != "Unpublish" {
		t.Errorf("the driver got %v", calls)
	}
}

// Its pod may be synced more often than that.
func TestAPeriodIsNotBegunAnewByEachSync(t *testing.T) {
	n := newNode(t, "", func(v *Volumes) { v.followPeriod = 100 * time.Millisecond })
	f := newFake(t, driverName).serve().register(n)
	n.has(driverName)
	n.allow(driverName, republishes, storagev1.VolumeLifecycleEphemeral)
	v := n.inline("a", driverName)
	n.mustSetUp(v)
	eventually(t, "it is published again", func() bool {
		n.Adopt(v)
		return len(f.heard()) > 1
	})
	n.mustTearDown(v)
}

// It does so once it is known what the driver asks for.
func TestAVolumeOfAnEarlierPoddIsPublishedAgain(t *testing.T) {
	before, f := withDriver(t)
	before.allow(driverName, republishes, storagev1.VolumeLifecycleEphemeral)
	v := before.inline("a", driverName)
	before.mustSetUp(v)
	before.stop()
	n := newNode(t, before.root, func(v *Volumes) { v.followPeriod = 5 * time.Millisecond })
	n.has(driverName)
	n.objects.mu.Lock()
	n.objects.err = errors.New("the apiserver has not answered")
	n.objects.mu.Unlock()
	n.Adopt(v)
	n.mu.Lock()
	if len(n.followed) > 0 {
		t.Error("it is published again although its driver may not ask for that")
	}
	n.mu.Unlock()
	n.objects.mu.Lock()
	n.objects.err = nil
	n.objects.mu.Unlock()
	n.allow(driverName, republishes, storagev1.VolumeLifecycleEphemeral)
	n.Adopt(v)
	wantPublished(t, f, 2)
	n.mustTearDown(v)
}

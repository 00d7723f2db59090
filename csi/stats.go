package csi

import (
	"context"
	"errors"
	"fmt"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"

	"podd/internal/pod"
)

// Stats asks the driver of the volume in a directory, which SetUp has set up. It
// blocks as long as the driver takes, at most 2 minutes. The error is pod.ErrNoStats
// where the driver does not measure volumes, and another one where it is away: as
// with the kubelet, such a volume has no numbers then. Those of its file system may
// be another thing's (a directory of a disk that the driver shares out).
func (v *Volumes) Stats(ctx context.Context, dir string) (pod.VolumeStats, error) {
	s, err := v.stats(ctx, dir)
	if err != nil && !errors.Is(err, pod.ErrNoStats) {
		err = fmt.Errorf("%s: %w", pluginName, err)
	}
	return s, err
}

func (v *Volumes) stats(ctx context.Context, dir string) (pod.VolumeStats, error) {
	r, err := readRecord(dir)
	if err != nil {
		return pod.VolumeStats{}, err
	}
	if r.State != done {
		return pod.VolumeStats{}, errors.New("the volume is not published")
	}
	d, err := v.registry.driver(r.DriverName, pod.UID(""))
	if err != nil {
		return pod.VolumeStats{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, v.timeout)
	defer cancel()
	s, err := v.open(ctx, d)
	if err != nil {
		return pod.VolumeStats{}, err
	}
	defer s.close()
	if !s.can[csipb.NodeServiceCapability_RPC_GET_VOLUME_STATS] {
		return pod.VolumeStats{}, pod.ErrNoStats
	}
	request := &csipb.NodeGetVolumeStatsRequest{VolumeId: r.VolumeHandle, VolumePath: placesOf(v.root, dir, r).target}
	answer, err := call(ctx, s, s.node.NodeGetVolumeStats, request)
	if err != nil {
		return pod.VolumeStats{}, err
	}
	return statsOf(answer, s.can[csipb.NodeServiceCapability_RPC_VOLUME_CONDITION])
}

// statsOf is upstream's reading of an answer: without a condition there must be
// numbers, and an answer's condition counts where the driver watches that.
func statsOf(answer *csipb.NodeGetVolumeStatsResponse, watches bool) (out pod.VolumeStats, err error) {
	if watches {
		c := answer.GetVolumeCondition()
		out.Condition = &pod.VolumeCondition{Abnormal: c.GetAbnormal(), Message: bounded(c.GetMessage())}
	} else if answer.GetUsage() == nil {
		return out, errors.New("NodeGetVolumeStats: the driver answers without a usage")
	}
	for _, u := range answer.GetUsage() {
		switch u.GetUnit() {
		case csipb.VolumeUsage_BYTES:
			out.AvailableBytes, out.CapacityBytes, out.UsedBytes = u.GetAvailable(), u.GetTotal(), u.GetUsed()
		case csipb.VolumeUsage_INODES:
			out.InodesFree, out.Inodes, out.InodesUsed = u.GetAvailable(), u.GetTotal(), u.GetUsed()
		}
	}
	return out, nil
}

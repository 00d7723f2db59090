package csi

import (
	"context"
	"errors"
	"fmt"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"

	"podd/internal/pod"
)

// Stats gets the usage of a directory's volume, which SetUp has set up, from its driver. It
// blocks as long as the driver takes, at most 2 minutes. The error is pod.ErrNoStats if the
// driver does not report usage. If the driver is unavailable, it is another error: as in
// the kubelet, the volume then has no statistics, because statfs may be misleading (for a
// directory on a disk that the driver shares among volumes).
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
	if r.State != stateDone {
		return pod.VolumeStats{}, errors.New("the volume is not published")
	}
	d, err := v.drivers.driver(r.DriverName, pod.UID(""))
	if err != nil {
		return pod.VolumeStats{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, v.timeout)
	defer cancel()
	s, err := v.openSession(ctx, d)
	if err != nil {
		return pod.VolumeStats{}, err
	}
	defer s.close()
	if !s.capabilities[csipb.NodeServiceCapability_RPC_GET_VOLUME_STATS] {
		return pod.VolumeStats{}, pod.ErrNoStats
	}
	request := &csipb.NodeGetVolumeStatsRequest{VolumeId: r.VolumeHandle, VolumePath: pathsOf(v.root, dir, r).target}
	response, err := call(ctx, s, s.node.NodeGetVolumeStats, request)
	if err != nil {
		return pod.VolumeStats{}, err
	}
	return statsOf(response)
}

// statsOf converts a response as upstream does: it must contain the usage.
func statsOf(response *csipb.NodeGetVolumeStatsResponse) (out pod.VolumeStats, err error) {
	if response.GetUsage() == nil {
		return out, errors.New("NodeGetVolumeStats: the driver's response has no usage")
	}
	for _, u := range response.GetUsage() {
		switch u.GetUnit() {
		case csipb.VolumeUsage_BYTES:
			out.AvailableBytes, out.CapacityBytes, out.UsedBytes = u.GetAvailable(), u.GetTotal(), u.GetUsed()
		case csipb.VolumeUsage_INODES:
			out.InodesFree, out.Inodes, out.InodesUsed = u.GetAvailable(), u.GetTotal(), u.GetUsed()
		}
	}
	return out, nil
}

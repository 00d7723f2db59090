package csi

import (
	"context"
	"errors"
	"fmt"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"

	"podd/internal/pod"
)

// ErrNoStats says that a volume's driver does not measure volumes: whoever wants to
// know asks the file system.
var ErrNoStats = errors.New("the volume's driver does not measure volumes")

// Stats are what a driver says of a volume, in bytes and inodes; 0 where it says
// nothing.
type Stats struct {
	AvailableBytes, CapacityBytes, UsedBytes int64
	InodesFree, Inodes, InodesUsed           int64
	// Abnormal says what is wrong with the volume; empty for nothing.
	Abnormal string
}

// Stats asks the driver of the volume in a directory, which SetUp has set up. It
// blocks as long as the driver takes, at most 2 minutes. The error is ErrNoStats where
// the driver cannot say, which is not worth a word.
func (v *Volumes) Stats(ctx context.Context, dir string) (Stats, error) {
	r, err := readRecord(dir)
	if err != nil {
		return Stats{}, err
	}
	d, err := v.registry.driver(r.DriverName, pod.UID(""))
	if err != nil {
		return Stats{}, fmt.Errorf("%s: %w", pluginName, err)
	}
	ctx, cancel := context.WithTimeout(ctx, v.timeout)
	defer cancel()
	s, err := v.open(ctx, d)
	if err != nil {
		return Stats{}, fmt.Errorf("%s: %w", pluginName, err)
	}
	defer s.close()
	if !s.can[csipb.NodeServiceCapability_RPC_GET_VOLUME_STATS] {
		return Stats{}, ErrNoStats
	}
	p := placesOf(v.root, dir, r)
	request := &csipb.NodeGetVolumeStatsRequest{VolumeId: r.VolumeHandle, VolumePath: p.target}
	answer, err := call(ctx, s, s.node.NodeGetVolumeStats, request)
	if err != nil {
		return Stats{}, fmt.Errorf("%s: %w", pluginName, err)
	}
	return statsOf(answer), nil
}

func statsOf(answer *csipb.NodeGetVolumeStatsResponse) Stats {
	var out Stats
	for _, u := range answer.GetUsage() {
		switch u.GetUnit() {
		case csipb.VolumeUsage_BYTES:
			out.AvailableBytes, out.CapacityBytes, out.UsedBytes = u.GetAvailable(), u.GetTotal(), u.GetUsed()
		case csipb.VolumeUsage_INODES:
			out.InodesFree, out.Inodes, out.InodesUsed = u.GetAvailable(), u.GetTotal(), u.GetUsed()
		}
	}
	if c := answer.GetVolumeCondition(); c.GetAbnormal() {
		if out.Abnormal = shorten(c.GetMessage()); out.Abnormal == "" {
			out.Abnormal = "the driver does not say what"
		}
	}
	return out
}

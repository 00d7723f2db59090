package csi

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

// stage makes the driver stage the volume, unless it is staged already.
func (v *Volumes) stage(ctx context.Context, s *session, p *plan) error {
	if !p.stages {
		return nil
	}
	old, err := readRecord(p.stagingRecordDir)
	staged := err == nil && old.State == stateDone && old.Boot == v.boot
	if staged && old.SELinuxLabel == p.SELinuxLabel {
		p.Capacity = old.Capacity
		return nil
	}
	if staged {
		if err := v.unstageOtherLabel(ctx, s, old, p); err != nil {
			return err
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(p.staging, 0o750); err != nil {
		return err
	}
	r := &record{SpecVolID: p.SpecVolID, VolumeHandle: p.VolumeHandle, DriverName: p.driver, VolumeLifecycleMode: p.VolumeLifecycleMode, Block: p.Block, Attached: p.Attached, State: stateBegun, Boot: v.boot, SELinuxLabel: p.SELinuxLabel}
	if err := r.write(p.stagingRecordDir); err != nil {
		return err
	}
	v.markInUse(r, p.stagingRecordDir)
	_, err = call(ctx, s, s.node.NodeStageVolume, &csipb.NodeStageVolumeRequest{
		VolumeId: p.VolumeHandle, StagingTargetPath: p.staging, VolumeCapability: p.capability(p.mountFlags(), true),
		PublishContext: p.publishContext, Secrets: p.secrets[forStage], VolumeContext: p.context,
	})
	switch {
	case err == nil:
		r.State = stateDone
		return r.write(p.stagingRecordDir)
	case isFinalError(err) && removeEmpty(p.staging) == nil: // nothing to unstage
		v.unmarkInUse(r, p.stagingRecordDir)
		return errors.Join(err, removeRecord(p.stagingRecordDir))
	}
	return err
}

// publish makes the driver publish the volume for the pod.
func (v *Volumes) publish(ctx context.Context, s *session, p *plan) error {
	volumeContext := p.context
	if p.podInfo != nil {
		volumeContext = maps.Clone(p.podInfo)
		maps.Copy(volumeContext, p.context)
		maps.Copy(volumeContext, p.podInfo)
	}
	request := &csipb.NodePublishVolumeRequest{
		VolumeId: p.VolumeHandle, TargetPath: p.target, VolumeCapability: p.capability(p.mountFlags(), true), Readonly: p.readOnly,
		PublishContext: p.publishContext, Secrets: p.secrets[forPublish], VolumeContext: volumeContext,
	}
	if p.stages {
		request.StagingTargetPath = p.staging
	}
	before := p.State
	p.State = stateBegun
	if err := p.write(p.dir); err != nil {
		return err
	}
	_, err := call(ctx, s, s.node.NodePublishVolume, request)
	switch {
	case err == nil:
		p.State = stateDone
		return p.write(p.dir)
	case isFinalError(err) && p.republishing:
		// A container may have mounted the target, even one that is an empty directory
		// without a mount.
		p.State = before
		return errors.Join(err, p.write(p.dir))
	case isFinalError(err) && removeEmpty(p.target) == nil: // nothing to unpublish
		p.State = stateIdle
		return errors.Join(err, p.write(p.dir))
	}
	return err
}

// expandStandalone makes the driver expand the volume's file system if the PersistentVolume's
// capacity exceeds that of the last expansion and the driver supports expansion. An
// infeasible expansion is logged and not retried.
func (v *Volumes) expandStandalone(ctx context.Context, s *session, p *plan) error {
	if !p.stages || !p.expands || p.readOnly || p.capacity <= p.Capacity {
		return nil
	}
	_, err := call(ctx, s, s.node.NodeExpandVolume, &csipb.NodeExpandVolumeRequest{
		VolumeId: p.VolumeHandle, VolumePath: p.target, StagingTargetPath: p.staging, VolumeCapability: p.capability(p.mountOptions, false),
		CapacityRange: &csipb.CapacityRange{RequiredBytes: p.capacity}, Secrets: p.secrets[forExpand],
	})
	if err != nil && !isInfeasibleError(err) {
		return err
	}
	if err != nil {
		v.log.Warn("CSI driver does not expand a volume: it stays as it is", "driver", p.driver, "volume", p.SpecVolID, "error", err)
	}
	r, err := readRecord(p.stagingRecordDir)
	if err != nil {
		return err
	}
	r.Capacity = p.capacity
	return r.write(p.stagingRecordDir)
}

// isInfeasibleError says whether retrying is pointless (upstream's isInfeasibleError). It
// includes FailedPrecondition: the volume cannot be expanded while in use.
func isInfeasibleError(err error) bool {
	code, _ := codeOf(err)
	switch code {
	case codes.InvalidArgument, codes.OutOfRange, codes.NotFound, codes.FailedPrecondition, codes.Unimplemented:
		return true
	}
	return false
}

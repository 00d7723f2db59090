package csi

import (
	"context"
	"fmt"
	"slices"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

// ClaimClient reads and writes claims of a cluster. It blocks until the apiserver has answered.
type ClaimClient interface {
	Claim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error)
	PersistentVolume(ctx context.Context, name string) (*v1.PersistentVolume, error)
	// PatchClaim changes the status of a claim and returns the claim after the change. It
	// is an error if the claim was changed meanwhile.
	PatchClaim(ctx context.Context, from, to *v1.PersistentVolumeClaim) (*v1.PersistentVolumeClaim, error)
}

// awaitsNodeExpansion says that the cluster has expanded a claim's volume, as far as it can, and
// waits for the node to expand the mounted volume (KEP-1790).
func awaitsNodeExpansion(c *v1.PersistentVolumeClaim) bool {
	s := c.Status.AllocatedResourceStatuses[v1.ResourceStorage]
	return s == v1.PersistentVolumeClaimNodeResizePending || s == v1.PersistentVolumeClaimNodeResizeInProgress
}

// resizable says that the volume may be expanded while its pod runs.
func (p *plan) resizable() bool { return p.claim != nil && !p.readOnly }

// expandClaim makes the driver expand a volume to the size of its PersistentVolume, and records
// that in the claim, if the claim waits for it. The volume's lock is held. After an error
// the volume has its old size, and must be tried again.
func (v *Volumes) expandClaim(ctx context.Context, s *session, p *plan, claim *v1.PersistentVolumeClaim, size resource.Quantity) error {
	if !p.expands || claim.Status.Capacity.Storage().Cmp(size) >= 0 {
		return nil
	}
	if p.readOnly {
		v.recordResizeEvent(p, claim, v1.EventTypeWarning, "FileSystemResizeFailed", fmt.Sprintf("MountVolume.NodeExpandVolume failed for volume %q requested read-only file system", p.SpecVolID))
		return nil
	}
	if !awaitsNodeExpansion(claim) {
		return nil
	}
	claim, err := v.cluster.PatchClaim(ctx, claim, withResizeStatus(claim, v1.PersistentVolumeClaimNodeResizeInProgress))
	if err != nil {
		return fmt.Errorf("mark node expansion in progress: %w", err)
	}
	request := &csipb.NodeExpandVolumeRequest{
		VolumeId: p.VolumeHandle, VolumePath: p.target, VolumeCapability: p.capability(p.mountOptions, false),
		CapacityRange: &csipb.CapacityRange{RequiredBytes: size.Value()}, Secrets: p.secrets[forExpand],
	}
	if p.stages {
		request.StagingTargetPath = p.staging
	}
	_, err = call(ctx, s, s.node.NodeExpandVolume, request)
	if err == nil {
		v.recordResizeEvent(p, claim, v1.EventTypeNormal, "FileSystemResizeSuccessful", fmt.Sprintf("MountVolume.NodeExpandVolume succeeded for volume %q %s", p.SpecVolID, v.nodeName))
		if _, err = v.cluster.PatchClaim(ctx, claim, withResizeFinished(claim, size)); err == nil {
			v.log.Info("CSI volume expanded", "driver", p.driver, "volume", p.SpecVolID, "size", size.String())
		}
		return err
	}
	if isFinalError(err) {
		if _, patchErr := v.cluster.PatchClaim(ctx, claim, withResizeFailed(claim, err)); patchErr != nil {
			v.log.Warn("cannot show the cluster why a volume is not expanded", "volume", p.SpecVolID, "error", patchErr)
		}
	}
	// In use, or never: neither keeps a pod from its volume.
	if code, _ := codeOf(err); code == codes.FailedPrecondition || isInfeasibleError(err) {
		v.log.Warn("CSI driver does not expand a volume: it stays as it is", "driver", p.driver, "volume", p.SpecVolID, "error", err)
		return nil
	}
	return err
}

// recordResizeEvent records an event of the pod and of the claim; reasons and messages are
// upstream's.
func (v *Volumes) recordResizeEvent(p *plan, claim *v1.PersistentVolumeClaim, eventType, reason, message string) {
	v.events.Event(p.pod, eventType, reason, message)
	v.events.ClaimEvent(claim, eventType, reason, message)
}

// expandMounted expands a mounted volume, if its claim waits for that.
func (v *Volumes) expandMounted(ctx context.Context, volume pod.CSIVolume) error {
	ctx, cancel := context.WithTimeout(ctx, v.timeout)
	defer cancel()
	claim, err := v.cluster.Claim(ctx, volume.Claim.Namespace, volume.Claim.Name)
	if err != nil || !awaitsNodeExpansion(claim) || claim.UID != volume.Claim.UID {
		return err
	}
	pv, err := v.cluster.PersistentVolume(ctx, volume.Persistent.Name)
	if err != nil {
		return err
	}
	p, err := v.plan(ctx, &volume)
	if err != nil {
		return err
	}
	if err := p.getSecrets(ctx, v.objects); err != nil {
		return err
	}
	d, err := v.drivers.driver(p.driver, "")
	if err != nil {
		return err
	}
	unlock, err := v.locks.Lock(ctx, p.key())
	if err != nil {
		return err
	}
	defer unlock()
	if !p.isSetUp() {
		return nil // it was torn down meanwhile
	}
	s, err := v.openSession(ctx, d)
	if err != nil {
		return err
	}
	defer s.close()
	p.setCapabilities(s.capabilities)
	return v.expandClaim(ctx, s, p, claim, *pv.Spec.Capacity.Storage())
}

// withResizeStatus returns a claim with that status of its resize.
func withResizeStatus(c *v1.PersistentVolumeClaim, status v1.ClaimResourceStatus) *v1.PersistentVolumeClaim {
	c = c.DeepCopy()
	if c.Status.AllocatedResourceStatuses == nil {
		c.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{}
	}
	c.Status.AllocatedResourceStatuses[v1.ResourceStorage] = status
	return c
}

// withResizeFinished returns a claim after its resize, without the conditions about it.
func withResizeFinished(c *v1.PersistentVolumeClaim, size resource.Quantity) *v1.PersistentVolumeClaim {
	c = c.DeepCopy()
	if c.Status.Capacity == nil {
		c.Status.Capacity = v1.ResourceList{}
	}
	c.Status.Capacity[v1.ResourceStorage] = size
	delete(c.Status.AllocatedResourceStatuses, v1.ResourceStorage)
	c.Status.Conditions = slices.DeleteFunc(c.Status.Conditions, func(c v1.PersistentVolumeClaimCondition) bool {
		switch c.Type {
		case v1.PersistentVolumeClaimFileSystemResizePending, v1.PersistentVolumeClaimResizing, v1.PersistentVolumeClaimControllerResizeError, v1.PersistentVolumeClaimNodeResizeError:
			return true
		}
		return false
	})
	return c
}

// withResizeFailed returns a claim with the reason why the driver has refused to expand it.
func withResizeFailed(c *v1.PersistentVolumeClaim, why error) *v1.PersistentVolumeClaim {
	c = c.DeepCopy()
	if isInfeasibleError(why) {
		c = withResizeStatus(c, v1.PersistentVolumeClaimNodeResizeInfeasible)
	}
	if slices.ContainsFunc(c.Status.Conditions, func(c v1.PersistentVolumeClaimCondition) bool {
		return c.Type == v1.PersistentVolumeClaimNodeResizeError
	}) {
		return c // the first reason stays, as with a kubelet
	}
	c.Status.Conditions = append(c.Status.Conditions, v1.PersistentVolumeClaimCondition{
		Type: v1.PersistentVolumeClaimNodeResizeError, Status: v1.ConditionTrue, LastTransitionTime: metav1.Now(),
		Message: fmt.Sprintf("failed to expand pvc with %v", why),
	})
	return c
}

package csi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/moby/sys/mountinfo"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podd/internal/pod"
)

// plan holds the parameters of the calls for one volume of a pod.
type plan struct {
	*record
	paths
	driver string
	pod    *v1.Pod

	// context is the volume context; podInfo is added to it on publish if the driver
	// asks for that (podInfoOnMount).
	context, podInfo map[string]string
	// secretRefs are the Secrets by call; secrets are their values.
	secretRefs    map[purpose]v1.SecretReference
	secrets       map[purpose]map[string]string
	fsType        string
	mountOptions  []string
	accessModes   []v1.PersistentVolumeAccessMode
	readOnly      bool
	republish     bool
	capacity      int64 // in bytes; 0 where unknown
	fsGroupPolicy storagev1.FSGroupPolicy
	// claim is the volume's claim in a cluster; size is that of its PersistentVolume.
	claim *v1.PersistentVolumeClaim
	size  resource.Quantity
	// republishing says that the volume is published already, and is being published again. If
	// that fails, it stays as it is.
	republishing bool
	// limitChanges says that the number of volumes that can be attached changes, so that
	// the cluster may try to attach too many.
	limitChanges bool
	// publishContext is from the volume's attachment. tokens are those that the driver asks
	// for; with tokensAreSecrets, they go among the secrets.
	publishContext   map[string]string
	tokens           []storagev1.TokenRequest
	tokensAreSecrets bool

	// mountsLabel says that the driver mounts volumes with SELinux labels. label is the one
	// that the pod needs, and labelError says why there is none. The driver mounts the volume
	// with record.SELinuxLabel.
	mountsLabel bool
	label       string
	labelError  error

	// These depend on the driver's capabilities.
	stages, mountsGroup, expands, singleWriter bool
}

// purpose is the call that needs a Secret, as in upstream's error messages.
type purpose string

const (
	forStage   purpose = "NodeStageSecretRef"
	forPublish purpose = "NodePublishSecretRef"
	forExpand  purpose = "NodeExpandSecretRef"
)

// plan returns the plan for a volume, or upstream's error if the driver may not be used
// for it.
func (v *Volumes) plan(ctx context.Context, volume *pod.CSIVolume) (*plan, error) {
	return v.planBy(volume, func(driver string) (*storagev1.CSIDriver, error) { return v.objects.CSIDriver(ctx, volume.Pod, driver) })
}

// planBy is plan with the CSIDriver from a function.
func (v *Volumes) planBy(volume *pod.CSIVolume, csiDriver func(driver string) (*storagev1.CSIDriver, error)) (*plan, error) {
	r := newRecord(volume, v.nodeName)
	p := &plan{record: r, paths: pathsOf(v.root, volume.Dir, r), driver: r.DriverName, pod: volume.Pod, claim: volume.Claim,
		secretRefs: map[purpose]v1.SecretReference{}, readOnly: volume.ReadOnly, fsGroupPolicy: storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy}
	if err := checkName(p.driver); err != nil {
		return nil, err
	}
	doc, err := csiDriver(p.driver)
	if err != nil && !errors.Is(err, pod.ErrNotFound) {
		return nil, err
	}
	if err := checkLifecycleMode(doc, r); err != nil {
		return nil, err
	}
	if pod.FromCluster(p.pod) {
		p.configureCluster(doc)
	} else if err := checkStandalone(doc, r); err != nil {
		return nil, err
	}
	if doc != nil {
		p.configure(doc)
	}
	if volume.Inline != nil {
		p.configureInline(volume.Inline)
	} else {
		p.configurePersistent(volume.Persistent)
	}
	p.configureSELinux(v.selinux, doc, volume)
	return p, nil
}

// checkLifecycleMode checks whether the CSIDriver object allows such volumes. As upstream, without
// an object it allows only persistent volumes; for pods of manifests, podd then assumes
// that they need not be attached.
func checkLifecycleMode(doc *storagev1.CSIDriver, r *record) error {
	mode := storagev1.VolumeLifecycleMode(r.VolumeLifecycleMode)
	switch {
	case doc == nil && r.persistent():
		return nil
	case doc == nil:
		return fmt.Errorf("mounter.SetupAt failed to check volume lifecycle mode: volume mode %q not supported by driver %s (no CSIDriver object): add its CSIDriver document with volumeLifecycleModes: [%s] to the manifests", mode, r.DriverName, mode)
	case !slices.Contains(modesOf(doc), mode):
		return fmt.Errorf("mounter.SetupAt failed to check volume lifecycle mode: volume mode %q not supported by driver %s (only supports %q)", mode, r.DriverName, modesOf(doc))
	}
	return nil
}

// checkStandalone rejects, for a pod of a manifest, a driver that needs a cluster.
func checkStandalone(doc *storagev1.CSIDriver, r *record) error {
	switch {
	case doc == nil:
	case r.persistent() && (doc.Spec.AttachRequired == nil || *doc.Spec.AttachRequired):
		return fmt.Errorf("CSIDriver %s has attachRequired: true, and nothing attaches volumes without a cluster: write attachRequired: false if the driver's volumes are on this node", r.DriverName)
	case len(doc.Spec.TokenRequests) > 0:
		return fmt.Errorf("CSIDriver %s has tokenRequests, which only an apiserver can answer: remove them", r.DriverName)
	}
	return nil
}

func modesOf(doc *storagev1.CSIDriver) []storagev1.VolumeLifecycleMode {
	if len(doc.Spec.VolumeLifecycleModes) == 0 {
		return []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
	return doc.Spec.VolumeLifecycleModes
}

// configure applies a CSIDriver object.
func (p *plan) configure(doc *storagev1.CSIDriver) {
	if doc.Spec.FSGroupPolicy != nil {
		p.fsGroupPolicy = *doc.Spec.FSGroupPolicy
	}
	if doc.Spec.PodInfoOnMount != nil && *doc.Spec.PodInfoOnMount {
		p.podInfo = map[string]string{
			"csi.storage.k8s.io/pod.name":            p.pod.Name,
			"csi.storage.k8s.io/pod.namespace":       p.pod.Namespace,
			"csi.storage.k8s.io/pod.uid":             string(p.pod.UID),
			"csi.storage.k8s.io/serviceAccount.name": p.pod.Spec.ServiceAccountName,
			"csi.storage.k8s.io/ephemeral":           strconv.FormatBool(!p.persistent()),
		}
	}
	p.republish = doc.Spec.RequiresRepublish != nil && *doc.Spec.RequiresRepublish
}

func (p *plan) configureInline(source *v1.CSIVolumeSource) {
	p.context = source.VolumeAttributes
	if source.FSType != nil {
		p.fsType = *source.FSType
	}
	if source.ReadOnly != nil {
		p.readOnly = p.readOnly || *source.ReadOnly
	}
	if ref := source.NodePublishSecretRef; ref != nil {
		p.secretRefs[forPublish] = v1.SecretReference{Namespace: p.pod.Namespace, Name: ref.Name}
	}
}

func (p *plan) configurePersistent(pv *v1.PersistentVolume) {
	source := pv.Spec.CSI
	p.context, p.fsType, p.mountOptions, p.accessModes = source.VolumeAttributes, source.FSType, pv.Spec.MountOptions, pv.Spec.AccessModes
	if size, ok := pv.Spec.Capacity[v1.ResourceStorage]; ok {
		p.capacity, p.size = size.Value(), size
	}
	for what, ref := range map[purpose]*v1.SecretReference{
		forStage: source.NodeStageSecretRef, forPublish: source.NodePublishSecretRef, forExpand: source.NodeExpandSecretRef,
	} {
		if ref != nil {
			p.secretRefs[what] = *ref
		}
	}
}

// getSecrets gets the values of the Secrets.
func (p *plan) getSecrets(ctx context.Context, objects Objects) error {
	p.secrets = map[purpose]map[string]string{}
	for _, what := range slices.Sorted(maps.Keys(p.secretRefs)) {
		ref := p.secretRefs[what]
		secret, err := objects.SecretOf(ctx, p.pod, ref.Namespace, ref.Name)
		if err != nil {
			return fmt.Errorf("fetching %s %s/%s failed: %w", what, ref.Namespace, ref.Name, err)
		}
		values := make(map[string]string, len(secret.Data))
		for key, value := range secret.Data {
			values[key] = string(value)
		}
		p.secrets[what] = values
	}
	return nil
}

// setCapabilities sets the fields that depend on the driver's capabilities.
func (p *plan) setCapabilities(can map[csipb.NodeServiceCapability_RPC_Type]bool) {
	p.stages = p.persistent() && can[csipb.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME]
	p.mountsGroup = can[csipb.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP]
	p.expands = p.persistent() && can[csipb.NodeServiceCapability_RPC_EXPAND_VOLUME]
	p.singleWriter = can[csipb.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER]
}

// fsGroup returns the pod's fsGroup, or nil.
func (p *plan) fsGroup() *int64 {
	if p.pod.Spec.SecurityContext == nil {
		return nil
	}
	return p.pod.Spec.SecurityContext.FSGroup
}

// appliesFSGroup says whether podd applies the fsGroup to the volume's files, by upstream's
// rules, rather than the driver or nobody.
func (p *plan) appliesFSGroup() bool {
	if p.fsGroup() == nil || p.mountsGroup || p.Block || p.readOnly {
		return false
	}
	switch p.fsGroupPolicy {
	case storagev1.NoneFSGroupPolicy:
		return false
	case storagev1.FileFSGroupPolicy:
		return true
	}
	if p.fsType == "" {
		return false
	}
	return !p.persistent() || slices.Contains(p.accessModes, v1.ReadWriteOnce) || slices.Contains(p.accessModes, v1.ReadWriteOncePod)
}

// capability returns the volume capability. Set withGroup for the calls that may mount the
// volume.
func (p *plan) capability(flags []string, withGroup bool) *csipb.VolumeCapability {
	c := &csipb.VolumeCapability{AccessMode: &csipb.VolumeCapability_AccessMode{Mode: p.accessMode()}}
	if p.Block {
		c.AccessType = &csipb.VolumeCapability_Block{Block: &csipb.VolumeCapability_BlockVolume{}}
		return c
	}
	mount := &csipb.VolumeCapability_MountVolume{FsType: p.fsType, MountFlags: flags}
	if withGroup && p.mountsGroup && p.fsGroup() != nil {
		mount.VolumeMountGroup = strconv.FormatInt(*p.fsGroup(), 10)
	}
	c.AccessType = &csipb.VolumeCapability_Mount{Mount: mount}
	return c
}

// accessMode returns the first access mode of the volume, converted as upstream does.
func (p *plan) accessMode() csipb.VolumeCapability_AccessMode_Mode {
	mode := v1.ReadWriteOnce
	if len(p.accessModes) > 0 {
		mode = p.accessModes[0]
	}
	switch {
	case mode == v1.ReadOnlyMany:
		return csipb.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	case mode == v1.ReadWriteMany:
		return csipb.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	case mode == v1.ReadWriteOncePod && p.singleWriter:
		return csipb.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	case mode == v1.ReadWriteOnce && p.singleWriter:
		return csipb.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
	}
	return csipb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
}

// recordUser records the pod as a user of the volume, before the driver is called.
func (p *plan) recordUser(boot string) error {
	if err := os.MkdirAll(filepath.Dir(p.target), 0o750); err != nil {
		return err
	}
	p.State, p.Boot = stateIdle, boot
	if old, err := readRecord(p.dir); err == nil {
		p.State = old.State // it may be published, and must then be unpublished
		if old.isMounted(boot) {
			p.SELinuxLabel = old.SELinuxLabel
		}
	}
	return p.write(p.dir)
}

// dirHasOtherVolume says whether the directory belongs to another CSI volume, from an earlier
// version of the PersistentVolume.
func (p *plan) dirHasOtherVolume() bool {
	r, err := readRecord(p.dir)
	return err == nil && r.key() != p.key()
}

// isSetUp says whether the volume is recorded and its driver was called for it.
func (p *plan) isSetUp() bool {
	r, err := readRecord(p.dir)
	return err == nil && r.key() == p.key() && r.State != stateIdle
}

// isPublished says whether an earlier podd has published the volume and it is still
// mounted.
func (p *plan) isPublished(boot string) bool {
	r, err := readRecord(p.dir)
	if err != nil || r.key() != p.key() || r.State != stateDone || r.Boot != boot {
		return false
	}
	mounted, err := mountinfo.Mounted(p.target)
	return err == nil && mounted
}

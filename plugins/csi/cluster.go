package csi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

// Cluster does what only a cluster can do for the volumes of its pods.
type Cluster interface {
	// InUseChanged says that the result of Volumes.InUse has changed. It must not block.
	InUseChanged()
	// WaitForAttach blocks until a volume that is in use is attached to this node, or ctx ends,
	// and returns the metadata of its VolumeAttachment, of that name.
	WaitForAttach(ctx context.Context, volume v1.UniqueVolumeName, attachment string) (map[string]string, error)
	// Token blocks until there is a token of the pod's service account, or ctx ends, or the
	// apiserver refuses it.
	Token(ctx context.Context, p *v1.Pod, s *v1.ServiceAccountTokenProjection) (token string, expires metav1.Time, err error)
	ClaimClient
	// DriversChanged says that Volumes.Registered has changed. It must not block.
	DriversChanged()
}

// NoCluster serves a node without an apiserver: volumes need not be attached, and there are
// no claims.
var NoCluster Cluster = noCluster{}

type noCluster struct{}

func (noCluster) InUseChanged() {}

func (noCluster) WaitForAttach(context.Context, v1.UniqueVolumeName, string) (map[string]string, error) {
	return nil, errNoCluster
}

func (noCluster) Token(context.Context, *v1.Pod, *v1.ServiceAccountTokenProjection) (string, metav1.Time, error) {
	return "", metav1.Time{}, errNoCluster
}

func (noCluster) Claim(context.Context, string, string) (*v1.PersistentVolumeClaim, error) {
	return nil, errNoCluster
}

func (noCluster) PersistentVolume(context.Context, string) (*v1.PersistentVolume, error) {
	return nil, errNoCluster
}

func (noCluster) PatchClaim(context.Context, *v1.PersistentVolumeClaim, *v1.PersistentVolumeClaim) (*v1.PersistentVolumeClaim, error) {
	return nil, errNoCluster
}

func (noCluster) DriversChanged() {}

var errNoCluster = fmt.Errorf("this node has no apiserver: %w", pod.ErrUnavailable)

// uniqueVolumeName is upstream's name of a volume in the status of a Node.
func (r *record) uniqueVolumeName() v1.UniqueVolumeName {
	return v1.UniqueVolumeName(pluginName + "/" + r.key())
}

// InUse returns the attached volumes that are mounted, may be, or are about to be: the
// cluster must not detach them. The result is sorted.
func (v *Volumes) InUse() []v1.UniqueVolumeName {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Sorted(maps.Keys(v.inUse))
}

// markInUse says that the directory of a pod's volume or of a staged volume needs an attached
// volume.
func (v *Volumes) markInUse(r *record, dir string) {
	if !r.Attached {
		return
	}
	v.mu.Lock()
	name := r.uniqueVolumeName()
	changed := v.inUse[name] == nil
	if changed {
		v.inUse[name] = map[string]bool{}
	}
	v.inUse[name][dir] = true
	v.mu.Unlock()
	if changed {
		v.cluster.InUseChanged()
	}
}

// unmarkInUse undoes markInUse, once the directory's record is gone.
func (v *Volumes) unmarkInUse(r *record, dir string) {
	v.mu.Lock()
	name := r.uniqueVolumeName()
	delete(v.inUse[name], dir)
	changed := v.inUse[name] != nil && len(v.inUse[name]) == 0
	if changed {
		delete(v.inUse, name)
	}
	v.mu.Unlock()
	if changed {
		v.cluster.InUseChanged()
	}
}

// loadInUse finds the volumes that an earlier podd has used.
func (v *Volumes) loadInUse() {
	for _, pattern := range append(v.stagedRecordPatterns("*"), filepath.Join(v.root, "pods", "*", "volumes", "kubernetes.io~csi", "*", recordFile)) {
		files, _ := filepath.Glob(pattern) // fails only for a bad pattern
		for _, file := range files {
			if r, err := readRecord(filepath.Dir(file)); err == nil {
				v.markInUse(r, filepath.Dir(file))
			}
		}
	}
}

// awaitCluster gets from the cluster what the volume needs: tokens, and its attachment. It waits
// for the attachment without the volume's lock, so that other pods' volumes can be
// unpublished meanwhile.
func (v *Volumes) awaitCluster(ctx context.Context, p *plan, again bool) error {
	if err := v.getTokens(ctx, p); err != nil || !p.Attached {
		return err
	}
	if !again { // then there is a record
		if err := v.recordInUse(ctx, p); err != nil {
			return err
		}
	}
	metadata, err := v.cluster.WaitForAttach(ctx, p.uniqueVolumeName(), p.AttachmentID)
	p.publishContext = metadata
	if errors.Is(err, pod.ErrAttachLimit) {
		return v.reportAttachLimit(ctx, p, err)
	}
	return err
}

// reportAttachLimit tells the cluster how many volumes the node has room for, before the
// cluster hears that this one is too many and looks for another node (KEP-4876). As
// upstream, it does so only for drivers with a limit that changes: for other drivers it
// drops the class of the error, and the pod waits.
func (v *Volumes) reportAttachLimit(ctx context.Context, p *plan, err error) error {
	if !p.limitChanges {
		return errors.New(err.Error())
	}
	if again := v.RefreshAttachLimit(context.WithoutCancel(ctx), p.driver); again != nil {
		v.log.Warn("cannot ask a CSI driver how many volumes can be attached", "driver", p.driver, "error", again)
	}
	return err
}

// recordInUse records that the volume is in use, so that TearDown undoes it.
func (v *Volumes) recordInUse(ctx context.Context, p *plan) error {
	unlock, err := v.locks.Lock(ctx, p.key())
	if err != nil {
		return fmt.Errorf("another call for the volume is still in progress: %w", err)
	}
	defer unlock()
	if err := p.recordUser(v.boot); err != nil {
		return err
	}
	v.markInUse(p.record, p.dir)
	return nil
}

// tokensKey is the key under which drivers expect the tokens that they ask for (KEP-1855).
const tokensKey = "csi.storage.k8s.io/serviceAccount.tokens"

// getTokens gets the tokens that the driver asks for. It puts them into the context of the
// volume or, if the driver wants that, among its secrets.
func (v *Volumes) getTokens(ctx context.Context, p *plan) error {
	if len(p.tokens) == 0 {
		return nil
	}
	issued := map[string]authenticationv1.TokenRequestStatus{}
	for _, r := range p.tokens {
		token, expires, err := v.cluster.Token(ctx, p.pod, &v1.ServiceAccountTokenProjection{Audience: r.Audience, ExpirationSeconds: r.ExpirationSeconds})
		if err != nil {
			return fmt.Errorf("mounter.SetUpAt failed to get service account token attributes: %w", err)
		}
		issued[r.Audience] = authenticationv1.TokenRequestStatus{Token: token, ExpirationTimestamp: expires}
	}
	text, err := json.Marshal(issued)
	if err != nil {
		return err
	}
	if !p.tokensAreSecrets {
		if p.podInfo == nil {
			p.podInfo = map[string]string{}
		}
		p.podInfo[tokensKey] = string(text)
		return nil
	}
	secrets := maps.Clone(p.secrets[forPublish])
	if secrets == nil {
		secrets = map[string]string{}
	}
	secrets[tokensKey] = string(text)
	p.secrets[forPublish] = secrets
	return nil
}

// configureCluster applies those settings of a CSIDriver that only a cluster can fulfil.
// Without the object, persistent volumes must be attached, as upstream.
func (p *plan) configureCluster(doc *storagev1.CSIDriver) {
	p.Attached = p.persistent() && (doc == nil || doc.Spec.AttachRequired == nil || *doc.Spec.AttachRequired)
	if doc != nil {
		p.limitChanges = doc.Spec.NodeAllocatableUpdatePeriodSeconds != nil
		p.tokens = doc.Spec.TokenRequests
		p.tokensAreSecrets = doc.Spec.ServiceAccountTokenInSecrets != nil && *doc.Spec.ServiceAccountTokenInSecrets
	}
}

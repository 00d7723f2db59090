package objects

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"podd/internal/pod"
)

// maxTrustAnchors bounds one projection of trust bundles, in bytes: ten bundles of the
// greatest size that an apiserver stores, or some thousand authorities.
const maxTrustAnchors = 10 << 20

// followBundles is followObject for ClusterTrustBundles.
func (s *Store) followBundles(ctx context.Context, key pod.ObjectKey, f *followedObject) {
	name, signer := key.Name, ""
	if key.Kind == pod.KindSignerTrustBundles {
		name, signer = "", key.Name
	}
	s.remote.FollowTrustBundles(ctx, name, signer, func(all []*certificatesv1.ClusterTrustBundle, err error) {
		var o *pod.Object
		if len(all) > 0 {
			o = &pod.Object{}
		}
		// In one order, so that the same bundles have the same hash.
		slices.SortFunc(all, func(a, b *certificatesv1.ClusterTrustBundle) int {
			return bytes.Compare([]byte(a.Name), []byte(b.Name))
		})
		for _, b := range all {
			o.Bundles = append(o.Bundles, pod.TrustBundle{Labels: b.Labels, PEM: b.Spec.TrustBundle})
		}
		s.handleAnswer(key, f, o, err)
	})
}

// TrustAnchors returns the certificates of a projection's ClusterTrustBundles as PEM
// (KEP-3257): each once, without headers and surrounding text, in an order that depends
// only on the certificates. Upstream shuffles them at each start, so that nobody relies on
// their order; with podd, a restart changes no file. The error for missing bundles says
// which; Changed is called for the pod when they are there.
func (s *Store) TrustAnchors(p *v1.Pod, of *v1.ClusterTrustBundleProjection) ([]byte, error) {
	if !pod.FromCluster(p) {
		return nil, errors.New("cannot project clusterTrustBundle: this pod is of a manifest, and trust bundles are for pods of the cluster")
	}
	bundles, err := s.bundles(of)
	if errors.Is(err, pod.ErrNotFound) && of.Optional != nil && *of.Optional {
		return []byte{}, nil
	}
	if err != nil {
		return nil, err
	}
	return normalizeAnchors(bundles)
}

// bundles returns the bundles that a projection selects: at least one.
func (s *Store) bundles(of *v1.ClusterTrustBundleProjection) ([]pod.TrustBundle, error) {
	if of.Name != nil {
		bundles, err := s.findBundles(pod.ObjectKey{Kind: pod.KindClusterTrustBundle, Name: *of.Name, Cluster: true})
		if err != nil {
			return nil, fmt.Errorf("clustertrustbundle %q %w", *of.Name, err)
		}
		return bundles, nil
	}
	if of.SignerName == nil {
		return nil, errors.New("a clusterTrustBundle needs a name or a signerName")
	}
	// As everywhere in the API: no selector matches nothing, an empty one everything.
	selector, err := metav1.LabelSelectorAsSelector(of.LabelSelector)
	if err != nil {
		return nil, fmt.Errorf("labelSelector of a clusterTrustBundle: %w", err)
	}
	bundles, err := s.findBundles(pod.ObjectKey{Kind: pod.KindSignerTrustBundles, Name: *of.SignerName, Cluster: true})
	bundles = slices.DeleteFunc(slices.Clone(bundles), func(b pod.TrustBundle) bool { return !selector.Matches(labels.Set(b.Labels)) })
	if err == nil && len(bundles) == 0 {
		err = pod.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("clustertrustbundles of signer %q with labels %q %w", *of.SignerName, selector.String(), err)
	}
	return bundles, nil
}

func (s *Store) findBundles(key pod.ObjectKey) ([]pod.TrustBundle, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.unknownReasonLocked(key); err != nil {
		return nil, err
	}
	if o := s.entryLocked(key).object; o != nil {
		return o.Bundles, nil
	}
	return nil, pod.ErrNotFound
}

func normalizeAnchors(bundles []pod.TrustBundle) ([]byte, error) {
	size, anchors := 0, map[string]bool{}
	for _, b := range bundles {
		if size += len(b.PEM); size > maxTrustAnchors {
			return nil, fmt.Errorf("the selected clusterTrustBundles have more than the limit of %d MiB in total: select fewer", maxTrustAnchors>>20)
		}
		for block, rest := pem.Decode([]byte(b.PEM)); block != nil; block, rest = pem.Decode(rest) {
			anchors[string(block.Bytes)] = true
		}
	}
	out := []byte{}
	for _, der := range slices.Sorted(maps.Keys(anchors)) {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(der)})...)
	}
	return out, nil
}

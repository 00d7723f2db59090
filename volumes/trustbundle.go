package volumes

import v1 "k8s.io/api/core/v1"

// TrustBundles returns the certificates of projected ClusterTrustBundles, as PEM. The error
// for missing ones says which; Changed is called for the pod when they appear, and when
// they change. It must not block.
type TrustBundles interface {
	TrustAnchors(p *v1.Pod, s *v1.ClusterTrustBundleProjection) ([]byte, error)
}

// NoTrustBundles makes a volume that asks for a trust bundle fail: the node has no
// apiserver.
var NoTrustBundles TrustBundles

// addTrustBundle adds a file of trust anchors, with the modes of a token, as upstream.
func (f files) addTrustBundle(t target, s *v1.ClusterTrustBundleProjection, mode *int32) error {
	if t.sources.bundles == NoTrustBundles {
		return noAPIServer("clusterTrustBundle", "has trust bundles")
	}
	anchors, err := t.sources.bundles.TrustAnchors(t.pod, s)
	if err != nil {
		return err
	}
	f.putPrivate(t, s.Path, anchors, mode, s.User)
	return nil
}

package volumes

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// bundles are of 10 MiB each, and made anew for each source.
type bundles struct{ made int }

func (b *bundles) TrustAnchors(*v1.Pod, *v1.ClusterTrustBundleProjection) ([]byte, error) {
	b.made++
	return make([]byte, 10<<20), nil
}

func TestAThousandTrustBundlesOfTenMiBAreRefusedBeforeTheyFillTheMemory(t *testing.T) {
	for name, path := range map[string]func(i int) string{
		"files of their own": func(i int) string { return fmt.Sprint("bundle-", i) },
		"one file":           func(int) string { return "bundle" },
	} {
		b := &bundles{}
		m := newMounter(t, newStore().into, func(o *Options) { o.TrustBundles = b })
		var parts []v1.VolumeProjection
		for i := range 1000 {
			parts = append(parts, v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Path: path(i)}})
		}
		mustSay(t, ensure(t, m, aPod("u1", projected("v", parts...))), `MountVolume.SetUp failed for volume "v" : its files have 100 MiB in total, more than the limit of 96 MiB`)
		if b.made > 10 {
			t.Errorf("%s: %d bundles of 10 MiB were made", name, b.made)
		}
	}
}

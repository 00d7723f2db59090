package suiteimages

import (
	"maps"
	"regexp"
	"slices"
	"testing"
)

// An image that upstream has renamed would be missed first by a test of its suite, after half an
// hour.
func TestEachImageHasANameOfItsOwn(t *testing.T) {
	all := append([]string{Agnhost, AgnhostPrev, BusyBox, DNSTesting, Nautilus, Nginx, NginxNew, NoNewPrivs, NonRoot, Hostpath}, Pauses...)
	all = slices.AppendSeq(all, maps.Values(Programs))
	form := regexp.MustCompile(`^registry\.k8s\.io/[a-z0-9-]+(/[a-z0-9-]+)?:v?[0-9][0-9.-]*$`)
	for _, name := range all {
		if !form.MatchString(name) {
			t.Errorf("got %q, want registry.k8s.io/…:VERSION", name)
		}
	}
	slices.Sort(all)
	if n := len(slices.Compact(slices.Clone(all))); n != len(all) {
		t.Errorf("of %d names %d are different: %q", len(all), n, all)
	}
}

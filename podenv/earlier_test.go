package podenv

import "testing"

// testdata/earlier has what podd 3e2131e has written: podd is upgraded while pods run.
func TestServicesOfAnEarlierPoddAreRead(t *testing.T) {
	all, ok := newStoredServices("testdata/earlier/services.json", "https://10.0.0.1:6443").read()
	if !ok || len(all) != 1 || all[0].Namespace+"/"+all[0].Name != "shop/web" || all[0].Spec.ClusterIP != "10.96.0.10" || all[0].Spec.Ports[0].Port != 80 {
		t.Errorf("got %+v, %t", all, ok)
	}
}

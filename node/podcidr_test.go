package node

import (
	"strings"
	"testing"

	"podd/cni"
	"podd/cri/critest"
)

func TestPodCIDRIsSaidInTheWordsOfCRI(t *testing.T) {
	srv := critest.New(t)
	n := newTestNode(t, srv)
	var p cni.RuntimeConfig = n.conn
	if err := p.UpdateRuntimeConfig(t.Context(), "10.0.1.0/24,fd00:1::/64"); err != nil {
		t.Fatal(err)
	}
	if got := srv.PodCIDR(); got != "10.0.1.0/24,fd00:1::/64" {
		t.Errorf("the runtime was told %q", got)
	}
	srv.Stop()
	if err := p.UpdateRuntimeConfig(t.Context(), "10.0.1.0/24"); err == nil || !strings.Contains(err.Error(), "tell the runtime the pod CIDR") {
		t.Errorf("without a runtime: got %v", err)
	}
}

package e2e

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podd/test/e2e/testnode"
)

// TestAVolumeWithAClaimHasMetrics: under the kubelet's names, and the claim's name in
// the summary.
func TestAVolumeWithAClaimHasMetrics(t *testing.T) {
	e := begin(t)
	path := t.TempDir()
	e.write("web.yaml", disk("right", "1Gi", local(path, e.podd.NodeName()))+claimOf("mine")+withClaim(e.podOf("web", ": > /data/file; : > /out/web; ${REST}"), "mine"))
	e.mark("web")
	e.ready("web")
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		t.Fatal(err)
	}
	body, err := testnode.GetLoopback(t.Context(), e.podd.ReadOnlyPort(), "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	const series = `kubelet_volume_stats_capacity_bytes{namespace="default",persistentvolumeclaim="mine"} `
	_, after, found := strings.Cut(string(body), series)
	line, _, _ := strings.Cut(after, "\n")
	if got, err := strconv.ParseFloat(line, 64); !found || err != nil || got != float64(fs.Blocks)*float64(fs.Bsize) {
		t.Errorf("%s: got %q, want %d", series, line, int64(fs.Blocks)*fs.Bsize)
	}
	if n := strings.Count(string(body), `persistentvolumeclaim="mine"`); n != 6 {
		t.Errorf("the claim has %d series, want 6", n)
	}
	if took := `kubelet_volume_metric_collection_duration_seconds_count{metric_source="statfs"} 1`; !strings.Contains(string(body), took) {
		t.Errorf("there is no %s", took)
	}
	body, err = testnode.GetLoopback(t.Context(), e.podd.ReadOnlyPort(), "/stats/summary")
	if err != nil {
		t.Fatal(err)
	}
	var s stats.Summary
	if err := json.Unmarshal(body, &s); err != nil {
		t.Fatal(err)
	}
	if len(s.Pods) != 1 || len(s.Pods[0].VolumeStats) != 1 || s.Pods[0].VolumeStats[0].PVCRef == nil || s.Pods[0].VolumeStats[0].PVCRef.Name != "mine" {
		t.Errorf("got %s, want the volume with its claim, and no hostPath", body)
	}
}

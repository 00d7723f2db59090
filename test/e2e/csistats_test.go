package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podd/test/e2e/testnode"
)

// ofClaim are the kubelet_volume_stats_* of a claim, by the rest of their names.
func (e *env) ofClaim(ctx context.Context, claim string) (map[string]float64, error) {
	body, err := testnode.GetLoopback(ctx, e.podd.ReadOnlyPort(), "/metrics")
	if err != nil {
		return nil, err
	}
	all := map[string]float64{}
	for line := range strings.Lines(string(body)) {
		name, value, found := strings.Cut(line, `{namespace="default",persistentvolumeclaim="`+claim+`"} `)
		name, ours := strings.CutPrefix(name, "kubelet_volume_stats_")
		if !found || !ours {
			continue
		}
		if all[name], err = strconv.ParseFloat(strings.TrimSpace(value), 64); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// wantOfClaim waits for the metrics of a claim.
func (e *env) wantOfClaim(claim string, want map[string]float64) {
	e.Helper()
	e.eventually("the metrics of claim "+claim, func(ctx context.Context) error {
		got, err := e.ofClaim(ctx, claim)
		if err == nil && fmt.Sprint(got) != fmt.Sprint(want) {
			err = fmt.Errorf("got %v, want %v", got, want)
		}
		return err
	})
}

// measuredAt is when each volume with a claim was measured, as the summary has it.
func (e *env) measuredAt() map[string]time.Time {
	e.Helper()
	began := time.Now()
	body, err := testnode.GetLoopback(e.Context(), e.podd.ReadOnlyPort(), "/stats/summary")
	if took := time.Since(began); err != nil || took > 10*time.Second {
		e.Fatalf("/stats/summary took %v: %v", took, err)
	}
	var s stats.Summary
	if err := json.Unmarshal(body, &s); err != nil {
		e.Fatal(err)
	}
	at := map[string]time.Time{}
	for _, p := range s.Pods {
		for _, v := range p.VolumeStats {
			if v.PVCRef != nil {
				at[v.PVCRef.Name] = v.Time.Time
			}
		}
	}
	return at
}

// TestACSIDriverSaysHowFullAVolumeIs: what it says is the claim's metrics and statistics,
// asked once however many ask; one that hangs holds up neither those who ask nor
// other volumes, and of the volumes of one that is gone nothing is said.
func TestACSIDriverSaysHowFullAVolumeIs(t *testing.T) {
	e := begin(t)
	d := e.newCSIDriver("stats.csi.example.com")
	d.start()
	e.write("disk.yaml", replacedAll(e, claimOfDriver, "${DRIVER}", d.name))
	e.write("web.yaml", withClaim(e.podOf("web", "printf hello > /data/a; printf world > /data/b; : > /out/web; ${REST}"), "data"))
	e.write("other.yaml", disk("plain", "1Gi", local(t.TempDir(), e.podd.NodeName()))+claimOf("mine")+withClaim(e.podOf("other", ": > /out/other; ${REST}"), "mine"))
	e.mark("web", "other")
	web := e.ready("web")
	e.ready("other")
	want := map[string]float64{"capacity_bytes": 100 << 30, "used_bytes": 10, "available_bytes": 100<<30 - 10,
		"inodes": 1000, "inodes_used": 2, "inodes_free": 998}
	e.wantOfClaim("data", want)
	for range 20 {
		e.wantOfClaim("data", want)
		if at := e.measuredAt(); at["data"].IsZero() || at["mine"].IsZero() {
			t.Fatalf("the summary has %v, want both claims", at)
		}
	}
	if n := d.count("NodeGetVolumeStats 1: <nil>"); n != 1 {
		t.Errorf("the driver was asked %d times in less than a minute, want once", n)
	}

	e.stop()
	e.podd.Config["volumeStatsAggPeriod"] = "200ms"
	e.start()
	e.wantOfClaim("data", want)

	if err := d.cmd.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	before := e.measuredAt()
	e.eventually("the other volume is measured while the driver hangs", func(context.Context) error {
		if now := e.measuredAt(); !now["mine"].After(before["mine"].Add(time.Second)) { // the API has whole seconds
			return fmt.Errorf("it was measured at %v, and before at %v", now["mine"], before["mine"])
		}
		return nil
	})
	d.end(unix.SIGKILL)
	e.wantOfClaim("data", nil)
	if got, err := e.ofClaim(t.Context(), "mine"); err != nil || len(got) != 6 {
		t.Errorf("the other claim has %v (%v), want six metrics", got, err)
	}
	d.start() // it takes back its volume
	e.remove("web.yaml")
	e.gone(string(web.UID))
}

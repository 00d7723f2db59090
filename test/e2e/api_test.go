package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"podd/test/e2e/testnode"
)

// TestMetricsAndPodsUnderTheKubeletsNames: on the read-only port of loopback,
// as dashboards expect them.
func TestMetricsAndPodsUnderTheKubeletsNames(t *testing.T) {
	e := begin(t)
	e.write("one.yaml", e.resting("one"))
	p := e.ready("one")
	body, err := testnode.GetLoopback(t.Context(), e.podd.ReadOnlyPort(), "/pods")
	if err != nil {
		t.Fatal(err)
	}
	pods, err := testnode.DecodePods(body)
	if err != nil || len(pods) != 1 || pods[0].UID != p.UID {
		t.Errorf("got %d pods (%v), want the one", len(pods), err)
	}
	// The pod has a hostPath: upstream's objective of a start does not count such pods.
	for _, want := range []string{
		"kubelet_running_pods 1\n", `kubelet_running_containers{container_state="running"} 1`, "kubelet_pod_start_duration_seconds_count 1",
		"kubelet_pod_start_sli_duration_seconds_count 0", "kubelet_pleg_relist_duration_seconds_count", "kubelet_pleg_last_seen_seconds",
		"kubelet_pod_worker_duration_seconds_count", "kubelet_runtime_operations_total{", "kubelet_runtime_operations_duration_seconds_count{",
		`kubelet_node_name{node="` + e.podd.NodeName() + `"} 1`, "go_goroutines", "process_resident_memory_bytes",
		`kubelet_desired_pods{static="true"} 1`, `kubelet_active_pods{static="true"} 1`, `kubelet_working_pods{config="desired",lifecycle="sync",static="true"} 1`,
		"kubelet_started_pods_total 1\n", `kubelet_started_containers_total{container_type="container"} 1`, "kubelet_pod_start_total_duration_seconds_count 1",
		"kubelet_containers_per_pod_count_count 1", "kubelet_pod_worker_start_duration_seconds_count 1", "kubelet_managed_ephemeral_containers 0",
		"kubelet_evented_pleg_connection_success_count 1", "kubelet_evented_pleg_connection_latency_seconds_count", "kubelet_cgroup_version ",
		"kubelet_imagemanager_ondisk_pulledrecords ", `kubelet_http_requests_duration_seconds_count{`, `kubelet_http_inflight_requests{`,
		`kubelet_pod_level_resources_admission_total{`,
	} {
		e.eventually("metric "+want, func(ctx context.Context) error {
			body, err := testnode.GetLoopback(ctx, e.podd.ReadOnlyPort(), "/metrics")
			if err == nil && !strings.Contains(string(body), want) {
				err = errors.New("it is not there")
			}
			return err
		})
	}
	if body, err := testnode.GetLoopback(t.Context(), e.podd.HealthPort(), "/healthz"); err != nil || string(body) != "ok" {
		t.Errorf("/healthz: got %q (%v), want ok", body, err)
	}
	if body, err := e.podd.Get(t.Context(), "/configz"); err != nil || !strings.Contains(string(body), e.podd.Manifests()) {
		t.Errorf("/configz: got %.200q (%v), want the manifest directory in it", body, err)
	}
	if body, err := testnode.GetLoopback(t.Context(), e.podd.ReadOnlyPort(), "/configz"); err == nil {
		t.Errorf("/configz on the port: got %.200q, want it on the socket alone", body)
	}
}

// TestPsShowsWhatRunsAndWhatIsWrong: `podd ps` at the machine, as a table and
// as JSON (kubernetes/website#38157: a static pod that did not start was
// invisible).
func TestPsShowsWhatRunsAndWhatIsWrong(t *testing.T) {
	e := begin(t)
	e.write("fine.yaml", e.resting("fine"))
	e.write("wrong.yaml", replaced(e, e.resting("wrong"), "image:", "imgae:"))
	p := e.ready("fine")
	e.problem("wrong.yaml", "imgae")
	table := e.run("ps")
	for _, want := range []string{p.Name, "Running", "wrong.yaml", "imgae"} {
		if !strings.Contains(table, want) {
			t.Errorf("podd ps has no %q:\n%s", want, table)
		}
	}
	var anything any
	if err := json.Unmarshal([]byte(e.run("ps", "-o", "json")), &anything); err != nil {
		t.Errorf("podd ps -o json: %v", err)
	}
	if out := e.run("events"); !strings.Contains(out, "Started") {
		t.Errorf("podd events has no Started:\n%s", out)
	} else if !strings.Contains(out, "Starting kubelet.") {
		t.Errorf("podd events has no Starting of the node:\n%s", out)
	}
}

// run is a command of podd's against this podd.
func (e *env) run(args ...string) string {
	e.Helper()
	cmd := exec.Command(e.podd.Binary, append(args, "--state-dir", e.node.State())...)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		e.Fatalf("podd %q: %v: %s", args, err, complaint.String())
	}
	return string(out) + complaint.String()
}

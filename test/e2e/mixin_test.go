package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"podd/test/cluster"
)

// mixinFile is testdata/mixin.yaml.
type mixinFile struct {
	Jobs   map[string]string
	Series []struct {
		Job, Where    string
		Labels, Names []string
		// Devices: the kernel must count accesses to block devices.
		Devices bool
	}
	Rules     []struct{ For, Expr string }
	Elsewhere map[string][]string
	Removed   []string
}

// prometheus is one that scrapes a node.
type prometheus struct{ url string }

// query returns the labels of an expression's results.
func (p prometheus) query(ctx context.Context, expr string) (results []map[string]string, err error) {
	var answer struct {
		Error string
		Data  struct {
			Result []struct{ Metric map[string]string }
		}
	}
	if err := p.get(ctx, "/api/v1/query?query="+url.QueryEscape(expr), &answer); err != nil {
		return nil, err
	}
	for _, r := range answer.Data.Result {
		results = append(results, r.Metric)
	}
	return results, nil
}

func (p prometheus) get(ctx context.Context, path string, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", path, answer.Status, text)
	}
	return json.Unmarshal(text, into)
}

// found waits until an expression has a result.
func (m *member) found(p prometheus, what, expr string) (results []map[string]string) {
	m.Helper()
	m.eventually(what+" finds "+expr, func(ctx context.Context) (err error) {
		if results, err = p.query(ctx, expr); err == nil && len(results) == 0 {
			err = errors.New("there is no such series")
		}
		return err
	})
	return results
}

// scrapedBy starts Prometheus, which verifies the node's certificate and shows a token that
// may get nodes/metrics, and nothing else.
func (m *member) scrapedBy(variable, user string, jobs map[string]string) prometheus {
	m.Helper()
	token, config := filepath.Join(m.podd.Dir, "prometheus.token"), filepath.Join(m.podd.Dir, "prometheus.yaml")
	var n v1.Node
	if err := m.server.Client().Get(m.Context(), cluster.Object{"kind": "Node", "metadata": map[string]any{"name": m.podd.NodeName()}}, &n); err != nil {
		m.Fatal(err)
	}
	i := slices.IndexFunc(n.Status.Addresses, func(a v1.NodeAddress) bool { return a.Type == v1.NodeInternalIP })
	if i < 0 {
		m.Fatalf("the node has no internal address: %+v", n.Status.Addresses)
	}
	target := net.JoinHostPort(n.Status.Addresses[i].Address, strconv.Itoa(int(n.Status.DaemonEndpoints.KubeletEndpoint.Port)))
	text := "global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n"
	for _, job := range slices.Sorted(maps.Keys(jobs)) {
		text += fmt.Sprintf("- {job_name: %s, metrics_path: %s, scheme: https, honor_labels: true, authorization: {credentials_file: %q}, tls_config: {ca_file: %q}, static_configs: [{targets: [%q]}]}\n",
			job, jobs[job], token, m.server.ClientCA(), target)
	}
	if err := errors.Join(os.WriteFile(token, []byte(m.server.UserToken(user)), 0o600), os.WriteFile(config, []byte(text), 0o600)); err != nil {
		m.Fatal(err)
	}
	address := "127.0.0.1:" + strconv.Itoa(m.node.Port+3)
	m.runs(variable, "prometheus", "--config.file="+config, "--storage.tsdb.path="+filepath.Join(m.podd.Dir, "tsdb"), "--web.listen-address="+address, "--log.level=warn")
	return prometheus{"http://" + address}
}

// TestPrometheusFindsWhatKubernetesMixinAsksOfANode: Debian's Prometheus scrapes a node by
// TLS and with a token, and every series of the mixin's rules, alerts and dashboards that a
// kubelet has is there, with the labels that they are joined by.
func TestPrometheusFindsWhatKubernetesMixinAsksOfANode(t *testing.T) {
	const variable = "PODD_TEST_PROMETHEUS"
	needs(t, variable)
	text, err := os.ReadFile("testdata/mixin.yaml")
	var mixin mixinFile
	if err = errors.Join(err, yaml.UnmarshalStrict(text, &mixin)); err != nil {
		t.Fatal(err)
	}
	m := meetWith(t, []string{"prometheus"})
	bootstrap := filepath.Join(m.podd.Dir, "bootstrap-kubeconfig")
	if err := m.server.BootstrapKubeconfig(t.Context(), bootstrap); err != nil {
		t.Fatal(err)
	}
	m.podd.Args = append(m.podd.Args, "--bootstrap-kubeconfig="+bootstrap, "--rotate-certificates", "--rotate-server-certificates")
	m.start()
	m.approve(certificatesv1.KubeAPIServerClientKubeletSignerName, time.Hour)
	m.nodeIsReady()
	m.approve(certificatesv1.KubeletServingSignerName, time.Hour)
	m.apply(replacedAll(m, `
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: USER}, rules: [{apiGroups: [""], resources: [nodes/metrics], verbs: [get]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: USER}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: USER}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: USER}]}
`, "USER", "prometheus"))

	// What the node has to tell of: a pod at its limit, with a claim and a probe, one that is
	// evicted, and one that the runtime cannot start.
	m.apply(disk("near", "1Gi", local(t.TempDir(), m.podd.NodeName())+"\nstorageClassName: by-hand") + claimOf("data", "storageClassName: by-hand"))
	m.bindClaim("data", "near")
	m.bind(replaced(m, withClaim(m.podOf("busy", "dd if=/dev/zero of=/data/file bs=1M count=4 conv=fsync; : > /out/busy; while :; do :; done"), "data"),
		"    volumeMounts:", "    readinessProbe: {exec: {command: [\"true\"]}, periodSeconds: 1}\n    resources: {requests: {cpu: 50m}, limits: {cpu: 200m, memory: 192Mi}}\n    volumeMounts:"))
	m.bind(replaced(m, m.podOf("much", "dd if=/dev/zero of=/scratch/file bs=1M count=12; ${REST}"), "mountPath: /out}]", "mountPath: /out}, {name: scratch, mountPath: /scratch}]") +
		"  - name: scratch\n    emptyDir: {sizeLimit: 10Mi}\n")
	m.bind(replaced(m, m.podOf("none", ""), `[/bin/sh, -c, ""]`, "[/none]"))
	m.bind(m.resting("idle"))
	m.shown("busy", "ready", isReady)
	m.shown("idle", "ready", isReady)
	m.shown("much", "evicted", isIn(v1.PodFailed))

	p := m.scrapedBy(variable, "prometheus", mixin.Jobs)
	for job := range mixin.Jobs {
		m.found(p, "Prometheus", fmt.Sprintf("up{job=%q} == 1", job))
	}
	devices := m.hasDevices()
	counted := 0
	for _, s := range mixin.Series {
		if s.Devices && !devices {
			continue
		}
		for _, name := range s.Names {
			selector := name + "{" + strings.Join(append(slices.DeleteFunc([]string{s.Where}, func(w string) bool { return w == "" }), fmt.Sprintf("job=%q", s.Job)), ",") + "}"
			results := m.found(p, "kubernetes-mixin", selector)
			if !slices.ContainsFunc(results, func(r map[string]string) bool {
				return !slices.ContainsFunc(s.Labels, func(l string) bool { return r[l] == "" })
			}) {
				t.Errorf("no series of %s has all of the labels %q: got %v", selector, s.Labels, results)
			}
			counted++
		}
	}
	for _, r := range mixin.Rules {
		m.found(p, r.For, r.Expr)
	}
	for _, name := range mixin.Removed {
		if results, err := p.query(t.Context(), name); err != nil || len(results) > 0 {
			t.Errorf("%s, which the kubelet does not have any more: got %v, %v", name, results, err)
		}
	}
	var targets struct {
		Data struct {
			ActiveTargets []struct{ ScrapeURL, LastError string }
		}
	}
	if err := p.get(t.Context(), "/api/v1/targets", &targets); err != nil {
		t.Error(err)
	}
	for _, target := range targets.Data.ActiveTargets {
		if target.LastError != "" {
			t.Errorf("%s: %s", target.ScrapeURL, target.LastError)
		}
	}
	t.Logf("%d series and %d rules were found; block devices are counted here: %v", counted, len(mixin.Rules), devices)
	m.delete("busy", "much", "none", "idle")
	m.gone("busy", "much", "none", "idle")
}

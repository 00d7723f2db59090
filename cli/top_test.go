package cli

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

func used(name string, milli, mebi uint64) stats.ContainerStats {
	cpu, memory := milli*1_000_000, mebi<<20
	return stats.ContainerStats{Name: name, CPU: &stats.CPUStats{UsageNanoCores: &cpu}, Memory: &stats.MemoryStats{WorkingSetBytes: &memory}}
}

func aSummary() stats.Summary {
	n, left := uint64(1500_000_000), uint64(3<<30)
	node := used("", 0, 1<<10)
	node.CPU.UsageNanoCores, node.Memory.AvailableBytes = &n, &left
	return stats.Summary{
		Node: stats.NodeStats{NodeName: "n1", CPU: node.CPU, Memory: node.Memory},
		Pods: []stats.PodStats{
			{PodRef: stats.PodReference{Namespace: "shop", Name: "web-n1"}, Containers: []stats.ContainerStats{used("a", 10, 30), used("b", 250, 20)}},
			{PodRef: stats.PodReference{Namespace: "default", Name: "db"}, Containers: []stats.ContainerStats{used("db", 100, 400)}},
			{PodRef: stats.PodReference{Namespace: "default", Name: "new"}, Containers: []stats.ContainerStats{{Name: "c"}}},
		},
	}
}

func TestTopHasKubectlsTables(t *testing.T) {
	for name, tt := range map[string]struct {
		o     TopOptions
		names []podName
		want  string
	}{
		"all":                       {TopOptions{}, nil, "NAMESPACE NAME CPU(cores) MEMORY(bytes)|default db 100m 400Mi|default new <unknown> <unknown>|shop web-n1 260m 50Mi"},
		"of a namespace, by memory": {TopOptions{Namespace: "default", SortBy: "memory", NoHeaders: true}, nil, "db 100m 400Mi|new <unknown> <unknown>"},
		"containers by CPU": {TopOptions{Containers: true, SortBy: "cpu"}, nil,
			"NAMESPACE POD NAME CPU(cores) MEMORY(bytes)|shop web-n1 b 250m 20Mi|default db db 100m 400Mi|shop web-n1 a 10m 30Mi|default new c <unknown> <unknown>"},
		"by the name in the manifest": {TopOptions{NoHeaders: true}, []podName{{"", "web"}}, "shop web-n1 260m 50Mi"},
		"elsewhere":                   {TopOptions{NoHeaders: true}, []podName{{"other", "web"}}, `pod "other/web" does not run`},
	} {
		t.Run(name, func(t *testing.T) {
			lines, missing := tt.o.lines(aSummary(), tt.names)
			var got []string
			for _, row := range tt.o.rows(lines) {
				got = append(got, strings.Join(row, " "))
			}
			if text := strings.Join(append(got, missing...), "|"); text != tt.want {
				t.Errorf("got  %s\nwant %s", text, tt.want)
			}
		})
	}
	if err := (&TopOptions{SortBy: "disk"}).CheckSort(); err == nil || !strings.Contains(err.Error(), "cpu or memory") {
		t.Errorf("got %v", err)
	}
}

// TestTopMeasuresWhereNobodyAskedBefore: the daemon's first answer has no rates.
func TestTopMeasuresWhereNobodyAskedBefore(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, "podd.sock"))
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := aSummary()
		if asked.Add(1) == 1 {
			s.Node.CPU.UsageNanoCores = nil
		}
		if r.URL.Path != "/stats/summary" || r.URL.Query().Get("only_cpu_and_memory") != "true" {
			t.Errorf("asked for %s", r.URL)
		}
		_ = json.NewEncoder(w).Encode(s) // a test's client reads it
	})}
	go func() { _ = server.Serve(l) }() // until it is closed
	t.Cleanup(func() { _ = server.Close() })
	var out bytes.Buffer
	if err := (&TopOptions{StateDir: dir}).RunNode(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(out.String(), "\n"); asked.Load() != 2 || !strings.HasPrefix(lines[0], "NAME   CPU(cores)   CPU(%)") || !strings.Contains(lines[1], "1500m") || !strings.HasSuffix(lines[1], "1024Mi          25%") {
		t.Errorf("asked %d times, got %s", asked.Load(), out.String())
	}
}

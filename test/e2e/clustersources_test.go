package e2e

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestAStaticPodIsShownInTheClusterByAMirrorPod(t *testing.T) {
	m := join(t)
	m.write("static.yaml", m.resting("static"))
	name := "static-" + m.podd.NodeName()
	isMirror := func(p *v1.Pod) error {
		if p.Annotations[v1.MirrorPodAnnotationKey] == "" || len(p.OwnerReferences) != 1 || p.OwnerReferences[0].Kind != "Node" {
			return errors.New("no mirror pod")
		}
		return isReady(p)
	}
	first := m.shown(name, "a ready mirror pod", isMirror)
	started := first.Status.ContainerStatuses[0].ContainerID
	m.delete(name)
	second := m.shown(name, "another mirror pod", func(p *v1.Pod) error {
		if p.UID == first.UID {
			return errors.New("the same")
		}
		return isMirror(p)
	})
	if id := second.Status.ContainerStatuses[0].ContainerID; id != started {
		t.Errorf("deleting the mirror pod restarted the container: %s, was %s", id, started)
	}
	m.kill()
	m.start()
	m.bind(m.resting("marker"))
	m.shown("marker", "ready", isReady)
	if after := m.shown(name, "shown", isMirror); after.UID != second.UID {
		t.Error("a restart of podd made another mirror pod")
	}
	m.write("static.yaml", replaced(m, withFields(m.podOf("static", ": > /out/edited; ${REST}"), "env: [{name: EDITED, value: \"1\"}]"), "metadata:\n", "metadata:\n  labels: {tier: back}\n"))
	m.mark("edited")
	m.shown(name, "what the manifest is now", func(p *v1.Pod) error {
		if env := p.Spec.Containers[0].Env; p.UID == second.UID || p.Labels["tier"] != "back" || len(env) != 1 || env[0].Name != "EDITED" {
			return fmt.Errorf("it has labels %v and variables %v", p.Labels, env)
		}
		return isMirror(p)
	})
	m.remove("static.yaml")
	m.delete("marker")
	m.gone(name, "marker")
}

// A file, a URL and an apiserver at once: all run, and the cluster sees all.
func TestPodsOfAllSourcesRunAndAreShownInTheCluster(t *testing.T) {
	m := meet(t)
	var answer atomic.Value
	answer.Store(m.resting("served"))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer.Load().(string)) }))
	defer server.Close()
	m.podd.Config["staticPodURL"], m.podd.Config["httpCheckFrequency"] = server.URL, "200ms"
	if err := m.server.NodeKubeconfig(m.kubeconfig(), m.podd.NodeName()); err != nil {
		t.Fatal(err)
	}
	m.start()
	m.write("filed.yaml", m.resting("filed"))
	m.bind(m.resting("bound"))
	for name, source := range map[string]string{"bound": "", "filed-" + m.podd.NodeName(): "file", "served-" + m.podd.NodeName(): "http"} {
		m.shown(name, "ready", func(p *v1.Pod) error {
			if of := p.Annotations["kubernetes.io/config.source"]; of != source {
				return fmt.Errorf("it is from %q, want %q", of, source)
			}
			return isReady(p)
		})
	}
	m.remove("filed.yaml")
	m.delete("bound")
	m.gone("filed-"+m.podd.NodeName(), "bound")
	m.shown("served-"+m.podd.NodeName(), "still ready", isReady)
	answer.Store(`{"apiVersion": "v1", "kind": "PodList", "items": []}`)
	m.gone("served-" + m.podd.NodeName())
}

// What only a cluster needs costs nothing where there is none.
func TestAMachineWithoutAClusterStartsNothingOfOne(t *testing.T) {
	parts := []string{"podd/cluster/apiserver.", "podd/podconfig/apiserver.", "podd/cluster/nodestatus.", "podd/cluster/identity.", "podd/cluster/mirror.", "podd/cluster/tokens.", "podd/events.(*Uploader)", "k8s.io/client-go/"}
	m := join(t)
	m.bind(m.resting("web"))
	m.shown("web", "ready", isReady)
	_, stacks := m.goroutines()
	seen := 0
	for _, part := range parts {
		if strings.Contains(stacks, part) {
			seen++
		}
	}
	if seen < 4 {
		t.Errorf("in a cluster, %d of %q are seen: the test would not see them elsewhere", seen, parts)
	}
	m.delete("web")
	m.gone("web")

	m.stop()
	alone := m.podd.Args[:0]
	for _, arg := range m.podd.Args {
		if !strings.HasPrefix(arg, "--kubeconfig=") && !strings.HasPrefix(arg, "--client-ca-file=") && !strings.HasPrefix(arg, "--cert-dir=") && !strings.HasPrefix(arg, "--port=") {
			alone = append(alone, arg)
		}
	}
	m.podd.Args = alone
	m.start()
	m.write("static.yaml", m.resting("static"))
	m.ready("static")
	_, stacks = m.goroutines()
	for _, part := range parts {
		if strings.Contains(stacks, part) {
			t.Errorf("without a cluster, there is a goroutine of %s:\n%s", part, stacks)
		}
	}
}

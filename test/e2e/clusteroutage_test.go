package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// here waits until this node shows a pod of the cluster as want says (nil): the apiserver
// may be away.
func (m *member) here(name, what string, want func(p *v1.Pod) error) {
	m.Helper()
	m.eventually("this node shows "+name+" as "+what, func(ctx context.Context) error {
		pods, err := m.podd.Pods(ctx)
		if err != nil {
			return err
		}
		for i := range pods {
			if p := &pods[i]; p.Name == name {
				if err := want(p); err != nil {
					return fmt.Errorf("%w; it is %s", err, describe(p))
				}
				return nil
			}
		}
		return errors.New("/pods does not list it")
	})
}

// named is the manifest of a pod with a variable of a Secret and a volume of a token.
func (m *member) named() string {
	text := replaced(m, m.podOf("named", `echo $PASSWORD > /out/.p; cat /t/token >> /out/.p; mv /out/.p /out/password; ${REST}`, "serviceAccountName: default"), "    volumeMounts: [",
		"    env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: password, key: value}}}]\n    volumeMounts: [{name: token, mountPath: /t}, ")
	return text + "  - name: token\n    projected: {sources: [{serviceAccountToken: {path: token}}]}\n"
}

// A machine that boots without its apiserver runs the pods that it had, as far as they need
// nothing of it, and has no Secret on its disk.
func TestAMachineThatBootsWithoutItsApiserverRunsItsPods(t *testing.T) {
	m := join(t)
	const secret = "TheSecretThatIsOnNoDisk"
	for _, text := range []string{
		"{apiVersion: v1, kind: ServiceAccount, metadata: {name: default}}",
		"{apiVersion: v1, kind: Secret, metadata: {name: password}, stringData: {value: " + secret + "}}",
	} {
		if err := m.server.Client().Apply(t.Context(), m.document(text)); err != nil {
			t.Fatal(err)
		}
	}
	m.bind(m.podOf("web", "echo x >> /out/starts; : > /out/web; ${REST}"))
	m.bind(m.named())
	m.bind(m.resting("deleted"))
	uid := m.shown("web", "ready", isReady).UID
	m.shown("named", "ready", isReady)
	m.shown("deleted", "ready", isReady)
	stored := filepath.Join(m.node.Root(), "cluster", "pods", string(uid)+".json")
	m.eventually("the pods are stored", func(context.Context) error {
		entries, err := os.ReadDir(filepath.Dir(stored))
		if err == nil && len(entries) != 3 {
			err = fmt.Errorf("got %v", entries)
		}
		return err
	})
	if err := m.server.Stop(); err != nil {
		t.Fatal(err)
	}
	m.kill()
	// A boot forgets what runs. One of the files was damaged.
	if err := m.node.CRI.RemoveAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	damaged := filepath.Join(filepath.Dir(stored), "damaged.json")
	text, err := os.ReadFile(stored)
	if err == nil {
		err = os.WriteFile(damaged, text[:len(text)/2], 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	m.start()
	m.here("web", "ready", isReady)
	m.here("deleted", "ready", isReady)
	m.here("named", "waiting", func(p *v1.Pod) error {
		if len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Waiting != nil {
			return nil
		}
		return errors.New("not waiting")
	})
	m.problem("damaged.json", "cannot be decoded")
	if n := strings.Count(m.contents("starts"), "x"); n != 2 {
		t.Errorf("web was started %d times, want twice", n)
	}
	if err := m.server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.delete("deleted")
	m.gone("deleted")
	m.shown("web", "ready", isReady)
	m.shown("named", "ready", isReady)
	if got := m.contents("password"); !strings.HasPrefix(got, secret) {
		t.Errorf("got %q", got)
	}
	if n := strings.Count(m.contents("starts"), "x"); n != 2 {
		t.Errorf("web was started %d times, want twice", n)
	}
	err = filepath.WalkDir(filepath.Join(m.node.Root(), "cluster"), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if strings.Contains(string(text), secret) {
			t.Errorf("%s has a Secret's value", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	m.delete("web", "named")
	m.gone("web", "named")
	if entries, err := os.ReadDir(filepath.Dir(stored)); err != nil || len(entries) > 0 {
		m.eventually("nothing stays stored", func(context.Context) error {
			entries, err := os.ReadDir(filepath.Dir(stored))
			if err == nil && len(entries) > 0 {
				err = fmt.Errorf("got %v", entries)
			}
			return err
		})
	}
}

func TestPodsOfTheClusterOutliveTheirApiserver(t *testing.T) {
	m := join(t)
	m.bind(m.resting("web"))
	web := m.shown("web", "ready", isReady)
	if err := m.server.Stop(); err != nil {
		t.Fatal(err)
	}
	m.write("static.yaml", m.resting("static"))
	m.ready("static")
	m.kill()
	m.start()
	m.mark("static")
	if list, err := m.node.CRI.Containers(t.Context()); err != nil || len(list) != 2 {
		t.Errorf("got %d containers, %v, want those of both pods", len(list), err)
	}
	if err := m.server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := m.shown("web", "ready", isReady)
	if after.Status.ContainerStatuses[0].ContainerID != web.Status.ContainerStatuses[0].ContainerID || after.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("got %+v, had %+v", after.Status.ContainerStatuses, web.Status.ContainerStatuses)
	}
	m.bind(m.resting("later"))
	m.shown("later", "ready", isReady)
	m.delete("web", "later")
	m.gone("web", "later")
}

// However often it changed meanwhile, and of a pod that did not change there is none.
func TestAfterAnOutageTheApiserverGetsOnePatchOfEachChangedPod(t *testing.T) {
	m := join(t)
	m.bind(m.resting("still"))
	m.bind(withFields(m.podOf("web", ": > /out/web; ${REST}"), "readinessProbe: {exec: {command: [test, -e, /out/web]}, periodSeconds: 1, failureThreshold: 1, timeoutSeconds: 30}"))
	m.shown("still", "ready", isReady)
	m.shown("web", "ready", isReady)
	if err := m.server.Stop(); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	isNotReady := func(p *v1.Pod) error {
		if isReady(p) == nil {
			return errors.New("ready")
		}
		return nil
	}
	path := filepath.Join(m.out, "web")
	for i := range 5 { // ends unready
		var err error
		want, what := isNotReady, "not ready"
		if i%2 == 0 {
			err = os.Remove(path)
		} else {
			want, what = isReady, "ready"
			err = os.WriteFile(path, nil, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		m.here("web", what, want)
	}
	if err := m.server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.shown("web", "not ready", isNotReady)
	m.bind(m.resting("later"))
	m.shown("later", "ready", isReady)
	all, err := m.server.Requests(m.podd.NodeName(), stopped)
	if err != nil {
		t.Fatal(err)
	}
	patches := map[string]int{}
	for _, r := range all {
		if r.What() == "patch pods/status" && r.Code == http.StatusOK {
			patches[r.Name]++
		}
	}
	if patches["web"] != 1 || patches["still"] != 0 || patches["later"] == 0 {
		t.Errorf("the apiserver got patches of %v, want one of web and none of still", patches)
	}
	m.delete("web", "still", "later")
	m.gone("web", "still", "later")
}

// Also by a podd that is started meanwhile (kubernetes/kubernetes#112814).
func TestStaticPodsAreChangedAndRemovedWhileTheApiserverIsAway(t *testing.T) {
	m := join(t)
	edited, removed := "edited-"+m.podd.NodeName(), "removed-"+m.podd.NodeName()
	m.write("edited.yaml", m.resting("edited"))
	m.write("removed.yaml", m.resting("removed"))
	m.bind(m.resting("bound"))
	for _, name := range []string{edited, removed, "bound"} {
		m.shown(name, "ready", isReady)
	}
	before := m.identities()
	if err := m.server.Stop(); err != nil {
		t.Fatal(err)
	}
	m.kill()
	m.remove("removed.yaml")
	m.write("edited.yaml", m.podOf("edited", ": > /out/again; ${REST}"))
	m.start()
	m.mark("again")
	m.eventually("the old ones are gone, and the cluster's is not", func(context.Context) error {
		now := m.identities()
		if len(now) != 2 || now[edited+"/main"] == before[edited+"/main"] || now["bound/main"] != before["bound/main"] {
			return fmt.Errorf("got %v, had %v", now, before)
		}
		return nil
	})
	if err := m.server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.gone(removed)
	m.shown(edited, "what it is now", func(p *v1.Pod) error {
		if got := p.Spec.Containers[0].Command[2]; !strings.Contains(got, "again") {
			return fmt.Errorf("it has %q", got)
		}
		return isReady(p)
	})
	m.remove("edited.yaml")
	m.delete("bound")
	m.gone(edited, "bound")
}

// A pod that was ready stays so, to the cluster, too: its endpoints must not lose it
// (kubernetes/kubernetes#100277).
func TestARestartOfPoddIsNotSeenInTheCluster(t *testing.T) {
	m := join(t)
	m.bind(withFields(m.resting("web"), "readinessProbe: {exec: {command: [\"true\"]}, periodSeconds: 1, timeoutSeconds: 30}"))
	m.shown("web", "ready", isReady)
	m.bind(m.resting("first"))
	m.shown("first", "ready", isReady) // and what there was to say of web was said
	since := time.Now()
	for _, end := range []func(){m.kill, m.stop} {
		end()
		m.start()
	}
	m.bind(m.resting("later"))
	m.shown("later", "ready", isReady)
	all, err := m.server.Requests(m.podd.NodeName(), since)
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	for _, r := range all {
		if r.What() == "patch pods/status" && r.Name == "web" {
			t.Errorf("after a restart: %s", r)
		} else if r.What() == "patch pods/status" && r.Name == "later" {
			told++
		}
	}
	if told == 0 {
		t.Error("the log of requests has none of the later pod")
	}
	m.delete("web", "first", "later")
	m.gone("web", "first", "later")
}

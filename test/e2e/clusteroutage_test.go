package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
	text := strings.Replace(m.podOf("named", `echo $PASSWORD > /out/.p; cat /t/token >> /out/.p; mv /out/.p /out/password; ${REST}`, "serviceAccountName: default"), "    volumeMounts: [",
		"    env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: password, key: value}}}]\n    volumeMounts: [{name: token, mountPath: /t}, ", 1)
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

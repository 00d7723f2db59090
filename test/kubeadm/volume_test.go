package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"podd/test/e2e/testnode"
)

const driverName = "attached.csi.example.com"

// storage is a claim, for which the cluster has one volume, and who uses it. The driver knows
// volumes 1, 2 and 3.
const storage = `apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: ` + driverName + `}
spec: {attachRequired: true}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: disk}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: by-hand
  csi: {driver: ` + driverName + `, volumeHandle: "1"}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  storageClassName: by-hand
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
---
apiVersion: v1
kind: Pod
metadata: {name: writer}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
  containers:
  - name: writer
    image: "` + testnode.ImageBusybox + `"
    imagePullPolicy: Never
    command: [sh, -c, "echo x >> /data/starts; exec sleep 100000"]
    volumeMounts: [{name: data, mountPath: /data}]
`

// csi is a CSI driver on a node, with upstream's attacher beside it.
type csi struct {
	*machine
	dir string
}

// newCSI starts both; the attacher is the cluster administrator to its apiserver.
func (m *machine) newCSI(node *machine) *csi {
	m.Helper()
	driver, attacher := os.Getenv("PODD_TEST_CSIDRIVER"), os.Getenv("PODD_TEST_ATTACHER")
	if driver == "" || attacher == "" {
		m.Fatal("PODD_TEST_CSIDRIVER or PODD_TEST_ATTACHER is not set: make kubeadm sets them")
	}
	c := &csi{machine: node, dir: filepath.Join(node.dir, "csi")}
	admin, err := os.ReadFile(fmt.Sprintf("/proc/%d/root/etc/kubernetes/admin.conf", m.init.Process.Pid))
	kubeconfig := filepath.Join(c.dir, "admin.conf")
	if err = errors.Join(err, os.Mkdir(c.dir, 0o700), os.WriteFile(kubeconfig, admin, 0o600)); err != nil {
		m.Fatal(err)
	}
	node.begin("driver", fmt.Sprintf("exec %s -attach -name %s -dir %[3]s -data %[3]s/data -registry /var/lib/kubelet/plugins_registry", driver, driverName, c.dir))
	node.begin("attacher", fmt.Sprintf("exec %s --kubeconfig=%s --csi-address=%s/csi.sock", attacher, kubeconfig, c.dir))
	return c
}

// calls are what the driver has been asked, and has answered, one a line.
func (c *csi) calls() []string {
	c.Helper()
	text, err := os.ReadFile(filepath.Join(c.machine.dir, "driver.log"))
	if err != nil {
		c.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// index is the place of the first call whose line has a text, or -1.
func (c *csi) index(text string) int {
	c.Helper()
	return slices.IndexFunc(c.calls(), func(line string) bool { return strings.Contains(line, text) })
}

// testVolume has the cluster's controllers bind a claim and attach its volume to the node that
// the scheduler chose. They detach it only after podd has unmounted it, though the pod's object
// went long before.
func (m *machine) testVolume(node *machine) {
	c := m.newCSI(node)
	path := filepath.Join(m.dir, "storage.yaml")
	if err := os.WriteFile(path, []byte(storage), 0o644); err != nil {
		m.Fatal(err)
	}
	m.run("kubectl", "apply", "-f", path)
	m.run("kubectl", "wait", "--for=condition=Ready", "--timeout=2m", "pod/writer")
	if text, err := os.ReadFile(filepath.Join(c.dir, "data", "1", "starts")); err != nil || string(text) != "x\n" {
		m.Errorf("the volume has %q, %v", text, err)
	}
	volume := v1.UniqueVolumeName("kubernetes.io/csi/" + driverName + "^1")
	m.eventually("the Node has the volume attached and in use", func(context.Context) error {
		var n v1.Node
		m.get(&n, "node", node.name)
		if s := n.Status; len(s.VolumesAttached) != 1 || s.VolumesAttached[0].Name != volume || !slices.Equal(s.VolumesInUse, []v1.UniqueVolumeName{volume}) {
			return fmt.Errorf("attached are %q, in use %q", s.VolumesAttached, s.VolumesInUse)
		}
		return nil
	})
	var attachments storagev1.VolumeAttachmentList
	m.get(&attachments, "volumeattachments")
	if len(attachments.Items) != 1 || attachments.Items[0].Spec.NodeName != node.name || !attachments.Items[0].Status.Attached {
		m.Fatalf("the cluster's attachments are %+v", attachments.Items)
	}

	// Somebody works in the volume where all pods of the node have it from.
	node.begin("holder", "cd /var/lib/kubelet/plugins/kubernetes.io/csi/"+driverName+"/*/globalmount; exec sleep 100000")
	node.kill("kubelet", "KILL")
	node.begin("kubelet", kubelet)
	m.run("kubectl", "delete", "pod", "writer", "--force", "--grace-period=0")
	m.eventually("podd has tried to unmount the volume", func(context.Context) error {
		if c.index("NodeUnstageVolume 1: rpc error") < 0 {
			return fmt.Errorf("the driver says:\n%s", strings.Join(c.calls(), "\n"))
		}
		return nil
	})
	var n v1.Node
	m.get(&n, "node", node.name)
	if !slices.Equal(n.Status.VolumesInUse, []v1.UniqueVolumeName{volume}) {
		m.Errorf("in use are %q while the volume is mounted", n.Status.VolumesInUse)
	}
	node.kill("holder", "KILL")
	m.run("kubectl", "wait", "--for=delete", "--timeout=2m", "volumeattachment/"+attachments.Items[0].Name)
	unmounted, detached := c.index("NodeUnstageVolume 1: <nil>"), c.index("ControllerUnpublishVolume 1: <nil>")
	if unmounted < 0 || detached < unmounted {
		m.Errorf("the volume was not unmounted, then detached:\n%s", strings.Join(c.calls(), "\n"))
	}
	m.eventually("the Node has no volume", func(context.Context) error {
		var n v1.Node
		m.get(&n, "node", node.name)
		if s := n.Status; len(s.VolumesAttached) > 0 || len(s.VolumesInUse) > 0 {
			return fmt.Errorf("attached are %q, in use %q", s.VolumesAttached, s.VolumesInUse)
		}
		return nil
	})
	m.run("kubectl", "delete", "-f", path, "--ignore-not-found")
	for _, name := range []string{"attacher", "driver"} {
		node.kill(name, "TERM")
	}
}

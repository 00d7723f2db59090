package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podd/test/cluster"
)

// told waits until the apiserver has an event of a pod, or of something else, with these words.
func (m *member) told(name, reason string, words ...string) {
	m.Helper()
	m.eventually("the apiserver has event "+reason+" of "+name, func(ctx context.Context) error {
		text, err := m.server.Client().Raw(ctx, "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name="+name)
		var list v1.EventList
		if err = errors.Join(err, json.Unmarshal(text, &list)); err != nil {
			return err
		}
		var others []string
		for _, e := range list.Items {
			if e.Reason == reason && holdsAll(e.Message, words) {
				return nil
			}
			others = append(others, e.Reason+": "+e.Message)
		}
		return fmt.Errorf("it has:\n%s", strings.Join(others, "\n"))
	})
}

// apply gives the documents of a text to the apiserver.
func (m *member) apply(text string) {
	m.Helper()
	for _, one := range strings.Split(text, "\n---\n") {
		if strings.TrimSpace(one) == "" {
			continue
		}
		if err := m.server.Client().Apply(m.Context(), m.document(one)); err != nil {
			m.Fatal(err)
		}
	}
}

// bindClaim binds a claim to a volume, as the cluster's controller of volumes does.
func (m *member) bindClaim(claim, volume string) {
	m.Helper()
	c, of := &v1.PersistentVolumeClaim{}, cluster.Object{"kind": "PersistentVolumeClaim", "metadata": map[string]any{"name": claim}}
	v := cluster.Object{"kind": "PersistentVolume", "metadata": map[string]any{"name": volume}}
	get := func() {
		if err := m.server.Client().Get(m.Context(), of, c); err != nil {
			m.Fatal(err)
		}
	}
	get()
	var whole cluster.Object
	if err := m.server.Client().Get(m.Context(), v, &whole); err != nil {
		m.Fatal(err)
	}
	whole["kind"], whole["apiVersion"] = "PersistentVolume", "v1"
	whole["spec"].(map[string]any)["claimRef"] = map[string]any{"kind": "PersistentVolumeClaim", "namespace": "default", "name": claim, "uid": string(c.UID)}
	c.Spec.VolumeName = volume
	text, err := json.Marshal(c)
	var changed cluster.Object
	if err = errors.Join(err, json.Unmarshal(text, &changed)); err != nil {
		m.Fatal(err)
	}
	changed["kind"], changed["apiVersion"] = "PersistentVolumeClaim", "v1"
	for _, o := range []cluster.Object{whole, changed} {
		if err := m.server.Client().Apply(m.Context(), o); err != nil {
			m.Fatal(err)
		}
	}
	get()
	c.Status.Phase, c.Status.Capacity = v1.ClaimBound, c.Spec.Resources.Requests
	if err := m.server.Client().PutStatus(m.Context(), of, c); err != nil {
		m.Fatal(err)
	}
}

// A claim that is bound while its pod waits, and an ephemeral volume whose claim the cluster
// makes for the pod, on the two kinds of volumes that are a node's own.
func TestPodsOfTheClusterHaveTheClaimsThatTheClusterBinds(t *testing.T) {
	m := join(t)
	host, other := t.TempDir(), t.TempDir()
	// Documents of manifests are for static pods: this claim is nobody's here.
	m.write("storage.yaml", disk("far", "1Gi", "hostPath: {path: "+t.TempDir()+"}")+claimOf("data"))
	m.apply(disk("near", "1Gi", "hostPath: {path: "+host+"}\nstorageClassName: by-hand") +
		disk("here", "1Gi", local(other, m.podd.NodeName())+"\nstorageClassName: by-hand") +
		disk("there", "1Gi", local(other, "another")+"\nstorageClassName: by-hand") +
		claimOf("away", "storageClassName: by-hand"))
	m.bindClaim("away", "there")
	write := func(name string) string {
		return "echo " + name + " > /data/" + name + "; : > /out/" + name + "; ${REST}"
	}
	m.bind(withClaim(m.podOf("web", write("web")), "data"))
	m.told("web", "FailedMount", `error processing PVC default/data: failed to fetch PVC from API server: persistentvolumeclaims "data" not found`)
	m.apply(claimOf("data", "storageClassName: by-hand"))
	m.told("web", "FailedMount", "error processing PVC default/data: PVC is not bound")
	m.bindClaim("data", "near")
	m.shown("web", "ready", isReady)

	m.bind(withClaim(m.podOf("lost", write("lost")), "away"))
	m.told("lost", "FailedMount", `MountVolume.NodeAffinity check failed for volume "there"`)

	m.bind(with(m.podOf("own", write("own")), "ephemeral: {volumeClaimTemplate: {spec: {storageClassName: by-hand, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}"))
	m.told("own", "FailedMount", "error processing PVC default/own-data: failed to fetch PVC")
	own := m.shown("own", "pending", isIn(v1.PodPending))
	m.apply(replaced(m, claimOf("own-data", "storageClassName: by-hand"), "metadata: {name: own-data}",
		fmt.Sprintf("metadata: {name: own-data, ownerReferences: [{apiVersion: v1, kind: Pod, name: own, uid: %s, controller: true}]}", own.UID)))
	m.bindClaim("own-data", "here")
	m.shown("own", "ready", isReady)
	for path, want := range map[string]string{filepath.Join(host, "web"): "web\n", filepath.Join(other, "own"): "own\n"} {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v", path, got, err)
		}
	}
	m.delete("web", "lost", "own")
	m.gone("web", "lost", "own")
	m.remove("storage.yaml")
	if err := m.waitNothingLeft(t.Context()); err != nil {
		t.Error(err)
	}
}

// The admission of the apiserver rejects pods whose RuntimeClass does not exist; a class may go
// later.
func TestAPodOfTheClusterRunsWithTheHandlerOfItsRuntimeClass(t *testing.T) {
	m := join(t, "--disable-admission-plugins=RuntimeClass")
	class := cluster.Object{"kind": "RuntimeClass", "metadata": map[string]any{"name": "special"}}
	document := func(handler string) string {
		return "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: special}, handler: " + handler + "}"
	}
	m.bind(m.podOf("web", ": > /out/web; ${REST}", "runtimeClassName: special", "overhead: {memory: 32Mi, cpu: 100m}"))
	m.told("web", "FailedCreatePodSandBox", `Failed to create pod sandbox: `, `runtimeclass.node.k8s.io "special" not found`)
	m.apply(document("unheard-of"))
	m.told("web", "FailedCreatePodSandBox", `no runtime for "unheard-of" is configured`)
	m.shown("web", "pending", isIn(v1.PodPending))
	if m.marked("web") {
		t.Error("it ran without its handler")
	}
	if err := m.server.Client().Delete(t.Context(), class); err != nil { // a handler cannot be changed
		t.Fatal(err)
	}
	m.apply(document("runc"))
	m.shown("web", "ready", isReady)
	m.delete("web")
	m.gone("web")
}

// get reads an object of the apiserver.
func (m *member) get(kind, name string, into any) error {
	return m.server.Client().Get(m.Context(), cluster.Object{"kind": kind, "metadata": map[string]any{"name": name}}, into)
}

// inUse waits until the Node says which volumes are in use.
func (m *member) inUse(want ...v1.UniqueVolumeName) {
	m.Helper()
	m.eventually(fmt.Sprintf("the volumes %q are in use", want), func(context.Context) error {
		var n v1.Node
		err := m.get("Node", m.podd.NodeName(), &n)
		if err == nil && !slices.Equal(n.Status.VolumesInUse, want) {
			err = fmt.Errorf("it has %q", n.Status.VolumesInUse)
		}
		return err
	})
}

// answerAttachment makes the VolumeAttachment of a volume, as the cluster's controller of
// attachments does, with the status that the driver's writes.
func (m *member) answerAttachment(driver, handle, volume string, status storagev1.VolumeAttachmentStatus) {
	m.Helper()
	node := m.podd.NodeName()
	attachment := fmt.Sprintf("csi-%x", sha256.Sum256([]byte(handle+driver+node)))
	m.apply(fmt.Sprintf("{apiVersion: storage.k8s.io/v1, kind: VolumeAttachment, metadata: {name: %s}, spec: {attacher: %s, nodeName: %s, source: {persistentVolumeName: %s}}}", attachment, driver, node, volume))
	var of storagev1.VolumeAttachment
	if err := m.get("VolumeAttachment", attachment, &of); err != nil {
		m.Fatal(err)
	}
	of.Status = status
	if err := m.server.Client().PutStatus(m.Context(), cluster.Object{"kind": "VolumeAttachment", "metadata": map[string]any{"name": attachment}}, of); err != nil {
		m.Fatal(err)
	}
}

// attach attaches a volume, as the two do together.
func (m *member) attach(driver, handle, volume string) {
	m.Helper()
	node := m.podd.NodeName()
	m.answerAttachment(driver, handle, volume, storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: map[string]string{"device": "/dev/mock"}})
	m.eventually("the Node has the attached volume", func(ctx context.Context) error { // podd writes its status, too
		var n v1.Node
		if err := m.get("Node", node, &n); err != nil {
			return err
		}
		n.Status.VolumesAttached = []v1.AttachedVolume{{Name: v1.UniqueVolumeName("kubernetes.io/csi/" + driver + "^" + handle)}}
		return m.server.Client().PutStatus(ctx, cluster.Object{"kind": "Node", "metadata": map[string]any{"name": node}}, n)
	})
}

// expanded says that a claim's volume was expanded, and its file system is to be, as the
// cluster's resizer does.
func (m *member) expanded(name, size string) {
	m.Helper()
	var c v1.PersistentVolumeClaim
	if err := m.get("PersistentVolumeClaim", name, &c); err != nil {
		m.Fatal(err)
	}
	c.Status.AllocatedResources = v1.ResourceList{v1.ResourceStorage: resource.MustParse(size)}
	c.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{v1.ResourceStorage: v1.PersistentVolumeClaimNodeResizePending}
	c.Status.Conditions = []v1.PersistentVolumeClaimCondition{{Type: v1.PersistentVolumeClaimFileSystemResizePending, Status: v1.ConditionTrue}}
	if err := m.server.Client().PutStatus(m.Context(), cluster.Object{"kind": "PersistentVolumeClaim", "metadata": map[string]any{"name": name}}, c); err != nil {
		m.Fatal(err)
	}
}

// A volume that must be attached: the node says that it is in use, waits, has what the
// attacher said for the driver, and says that it is no longer in use once it is unmounted, also
// across kills. The test is the controllers.
func TestAPodOfTheClusterHasAnAttachedVolumeOfACSIDriver(t *testing.T) {
	m := join(t)
	d := m.newCSIDriver("attached.csi.example.com")
	d.args = []string{"-attach"}
	node, volume := m.podd.NodeName(), v1.UniqueVolumeName("kubernetes.io/csi/"+d.name+"^1")
	m.apply("{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot}}")
	m.apply("{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: " + d.name + "}, spec: {attachRequired: true, tokenRequests: [{audience: vault}]}}")
	m.apply(replaced(m, replacedAll(m, claimOfDriver, "${DRIVER}", d.name), "capacity: {storage: 1Gi}", "capacity: {storage: 2Gi}"))
	m.bindClaim("data", "disk")
	m.expanded("data", "2Gi")
	m.bind(withClaim(m.podOf("web", "echo x >> /data/starts; : > /out/web; ${REST}", "serviceAccountName: robot"), "data"))
	m.told("web", "FailedMount", "driver name "+d.name+" not found in the list of registered CSI drivers")
	d.start()
	m.eventually("the cluster knows the driver", func(context.Context) error {
		var of storagev1.CSINode
		var n v1.Node
		if err := errors.Join(m.get("CSINode", node, &of), m.get("Node", node, &n)); err != nil {
			return err
		}
		const key, place = "io.kubernetes.storage.mock/node", "some-mock-node"
		if len(of.Spec.Drivers) != 1 || of.Spec.Drivers[0].Name != d.name || of.Spec.Drivers[0].NodeID == "" || *of.Spec.Drivers[0].Allocatable.Count != 3 ||
			!slices.Equal(of.Spec.Drivers[0].TopologyKeys, []string{key}) || len(of.OwnerReferences) != 1 || of.OwnerReferences[0].UID != n.UID {
			return fmt.Errorf("the CSINode is %+v of %+v", of.Spec, of.OwnerReferences)
		}
		want := fmt.Sprintf("{%q:%q}", d.name, of.Spec.Drivers[0].NodeID)
		if got := n.Annotations["csi.volume.kubernetes.io/nodeid"]; got != want || n.Labels[key] != place {
			return fmt.Errorf("the Node has %s and %v, want %s", got, n.Labels, want)
		}
		return nil
	})
	m.inUse(volume)
	if m.marked("web") {
		t.Error("it runs without its volume")
	}
	m.kill() // while it waits
	m.start()
	m.inUse(volume)
	m.attach(d.name, "1", "disk")
	m.shown("web", "ready", isReady)
	d.said(`NodeStageVolume 1: <nil>`)
	d.said(`NodePublishVolume 1: <nil> token for "vault": true until true`)
	d.said("NodeExpandVolume 1: <nil>")
	for _, of := range []string{"web", "data"} { // the pod and its claim
		m.told(of, "FileSystemResizeSuccessful", `MountVolume.NodeExpandVolume succeeded for volume "disk" `+node)
	}
	var claim v1.PersistentVolumeClaim
	if err := m.get("PersistentVolumeClaim", "data", &claim); err != nil || claim.Status.Capacity.Storage().String() != "2Gi" ||
		len(claim.Status.Conditions) > 0 || len(claim.Status.AllocatedResourceStatuses) > 0 || claim.Status.Phase != v1.ClaimBound {
		t.Errorf("the claim is %+v, %v", claim.Status, err)
	}
	m.kill()
	m.start()
	m.bind(m.resting("marker"))
	m.shown("marker", "ready", isReady)
	m.inUse(volume)
	m.delete("web", "marker")
	m.gone("web", "marker")
	d.said("NodeUnstageVolume 1: <nil>")
	m.inUse()
	d.end(unix.SIGTERM)
	m.eventually("the cluster forgets the driver", func(context.Context) error {
		var of storagev1.CSINode
		err := m.get("CSINode", node, &of)
		if err == nil && len(of.Spec.Drivers) > 0 {
			err = fmt.Errorf("it has %+v", of.Spec.Drivers)
		}
		return err
	})
}

// limit waits until the cluster knows how many volumes of a driver the node has room for.
func (m *member) limit(driver string, want int32) {
	m.Helper()
	m.eventually(fmt.Sprintf("the node has room for %d volumes", want), func(context.Context) error {
		var of storagev1.CSINode
		err := m.get("CSINode", m.podd.NodeName(), &of)
		if err == nil && (len(of.Spec.Drivers) != 1 || of.Spec.Drivers[0].Name != driver || *of.Spec.Drivers[0].Allocatable.Count != want) {
			err = fmt.Errorf("the CSINode is %+v", of.Spec)
		}
		return err
	})
}

// How many volumes can be attached changes behind the cluster's back, say by network cards
// that take the same slots (KEP-4876): the driver is asked again, and a pod that came too
// soon fails, so that its controller makes another one, instead of waiting for ever.
func TestAPodForWhoseVolumeTheNodeHasNoRoomFailsAndTheClusterLearnsTheLimit(t *testing.T) {
	m := join(t)
	d := m.newCSIDriver("full.csi.example.com")
	d.args = []string{"-attach"}
	m.apply("{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: " + d.name + "}, spec: {attachRequired: true, nodeAllocatableUpdatePeriodSeconds: 10}}")
	m.apply(replacedAll(m, claimOfDriver, "${DRIVER}", d.name))
	m.bindClaim("data", "disk")
	d.start()
	m.limit(d.name, 3)
	m.bind(withClaim(m.podOf("web", ": > /out/web; ${REST}"), "data"))
	m.bind(m.resting("other"))
	m.shown("other", "ready", isReady)
	m.inUse(v1.UniqueVolumeName("kubernetes.io/csi/" + d.name + "^1"))
	exhausted := int32(codes.ResourceExhausted)
	m.answerAttachment(d.name, "1", "disk", storagev1.VolumeAttachmentStatus{AttachError: &storagev1.VolumeError{Message: "no free slot", ErrorCode: &exhausted}})
	for _, limit := range []int32{2, 1} {
		if err := os.WriteFile(d.data()+".limit", fmt.Append(nil, limit), 0o600); err != nil {
			t.Fatal(err)
		}
		m.limit(d.name, limit)
	}
	m.shown("web", "pending", isIn(v1.PodPending))
	p := m.shown("web", "failed", isIn(v1.PodFailed)) // two minutes after its start
	if p.Status.Reason != "VolumeAttachmentLimitExceeded" || !holdsAll(p.Status.Message, []string{"Pod was rejected: Node has reached its volume attachment limit", `volume "data"`, "no free slot"}) {
		t.Errorf("the pod is %s", describe(p))
	}
	m.told("web", "VolumeAttachmentLimitExceeded", "Node has reached its volume attachment limit", "no free slot")
	m.inUse()
	m.kill()
	m.start()
	m.bind(m.resting("marker"))
	m.shown("marker", "ready", isReady)
	m.shown("web", "still failed", isIn(v1.PodFailed))
	if m.marked("web") {
		t.Error("it has run without its volume")
	}
	m.delete("web", "other", "marker")
	m.gone("web", "other", "marker")
}

// Who sees the object go may count on it that nothing of the pod is on the machine.
func TestAPodOfTheClusterIsDeletedOnceItsVolumesAreGone(t *testing.T) {
	m := join(t)
	m.bind(replaced(m, m.podOf("busy", "echo x > /scratch/file; : > /out/busy; ${REST}"), "mountPath: /out}]", "mountPath: /out}, {name: scratch, mountPath: /scratch}]") +
		"  - name: scratch\n    emptyDir: {medium: Memory}\n")
	scratch := filepath.Join(m.node.Root(), "pods", string(m.shown("busy", "ready", isReady).UID), "volumes/kubernetes.io~empty-dir/scratch")
	holder := m.heldBy(scratch)
	m.delete("busy")
	for range 2 { // also by the podd that is started then
		m.shows(fmt.Sprintf("process %d (sleep) holds it: working in %s", holder.Process.Pid, scratch))
		m.shown("busy", "still being deleted, its container gone", func(p *v1.Pod) error {
			if p.DeletionTimestamp == nil || p.Status.ContainerStatuses[0].State.Terminated == nil {
				return errors.New("it is not")
			}
			return nil
		})
		m.kill()
		m.start()
	}
	letGo(holder)
	m.gone("busy")
	if _, err := os.Stat(filepath.Dir(filepath.Dir(filepath.Dir(scratch)))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its object is deleted, its directory is there: %v", err)
	}
}

package manifest

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

const someVolume = `apiVersion: v1
kind: PersistentVolume
metadata:
  name: disk
spec:
  capacity: {storage: 5Gi}
  accessModes: [ReadWriteOnce]
`

const someClaim = `apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: data
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
`

const affinity = `  nodeAffinity:
    required:
      nodeSelectorTerms:
      - matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [n1]}]
`

func TestVolumesAndClaimsAreReadDefaultedAndClean(t *testing.T) {
	r := Decode([]byte(someVolume+"  hostPath: {path: /srv/disk}\n"+
		"  claimRef: {namespace: default, name: data, uid: a1b2, resourceVersion: \"7\"}\n  persistentVolumeReclaimPolicy: Retain\nstatus: {phase: Bound}\n---\n"+someClaim+
		"status: {phase: Bound, capacity: {storage: 9Gi}}\n"), Options{NodeName: "n1", Origin: "a.yaml"})
	if len(r.Problems) > 0 || len(r.Objects) != 2 {
		t.Fatalf("got %+v", r)
	}
	v, c := r.Objects[0].Volume, r.Objects[1].Claim
	if v.Namespace != "" || *v.Spec.VolumeMode != v1.PersistentVolumeFilesystem || v.Spec.HostPath.Type == nil || v.Spec.ClaimRef.UID != "" || v.Spec.ClaimRef.Name != "data" {
		t.Errorf("got %+v", v)
	}
	if c.Namespace != "default" || *c.Spec.VolumeMode != v1.PersistentVolumeFilesystem || len(c.Status.Capacity) > 0 {
		t.Errorf("got %+v", c)
	}
	if v, c := r.Objects[0].Key(), r.Objects[1].Key(); v.String() != "PersistentVolume disk" || c.String() != "PersistentVolumeClaim default/data" {
		t.Errorf("got %v, %v", v, c)
	}
}

// TestAVolumeIsOfAKindThatPoddHas, or is refused by that name.
func TestAVolumeIsOfAKindThatPoddHas(t *testing.T) {
	for source, want := range map[string]string{
		"  hostPath: {path: /srv}\n":                                                     "",
		"  nfs: {server: filer, path: /a}\n":                                             "",
		"  local: {path: /srv}\n" + affinity:                                             "",
		"  csi: {driver: d.example.org, volumeHandle: h}\n":                              "",
		"  hostPath: {path: /srv}\n  mountOptions: [noatime]\n":                          "spec.mountOptions: Forbidden: may not specify mount options for this volume type",
		"  awsElasticBlockStore: {volumeID: v, fsType: ext4}\n":                          "spec.awsElasticBlockStore: podd has no awsElasticBlockStore volumes; use its CSI driver, ebs.csi.aws.com",
		"  iscsi: {targetPortal: \"a:1\", iqn: \"iqn.2001-04.com.example:a\", lun: 0}\n": "spec.iscsi: podd has no iscsi volumes",
		"  flexVolume: {driver: a/b}\n":                                                  "spec.flexVolume: podd has no flexVolume volumes; Kubernetes has deprecated it",
		"  local: {path: /srv}\n":                                                        "spec.nodeAffinity: Required value: Local volume requires node affinity",
		"  local: {path: /srv/../etc}\n" + affinity:                                      "spec.local.path: Invalid value",
		"": "spec: Required value: must specify a volume type",
		"  hostPath: {path: /srv}\n  nfs: {server: f, path: /a}\n": "may not specify more than 1 volume type",
		"  hostpath: {path: /srv}\n":                               `unknown field "hostpath"`,
		"  hostPath: {path: /srv}\n  storageClassName: No_Class\n": "spec.storageClassName: Invalid value",
	} {
		r := Decode([]byte(someVolume+source), Options{NodeName: "n1", Origin: "a.yaml"})
		var got []string
		for _, p := range r.Problems {
			got = append(got, p.Field+": "+p.Message+"; "+p.Hint)
		}
		text := strings.Join(got, "\n")
		if want == "" && (text != "" || len(r.Objects) != 1) || !strings.Contains(text, want) || want != "" && len(r.Objects) > 0 {
			t.Errorf("%s: got %s", source, text)
		}
		if want != "" && (len(r.Failed) != 1 || r.Failed[0].Object != pod.ObjectKey{Kind: pod.KindPersistentVolume, Name: "disk"}) {
			t.Errorf("%s: failed are %+v", source, r.Failed)
		}
	}
}

func TestAVolumeHasNoNamespace(t *testing.T) {
	r := Decode([]byte(strings.Replace(someVolume, "  name: disk", "  name: disk\n  namespace: shop", 1)+"  hostPath: {path: /srv}\n"), Options{NodeName: "n1", Origin: "a.yaml"})
	if len(r.Objects) > 0 || len(r.Problems) != 1 || r.Problems[0].Field != "metadata.namespace" || r.Problems[0].Line != 5 {
		t.Errorf("got %+v", r)
	}
}

func TestAReclaimPolicyThatDeletesIsAWarning(t *testing.T) {
	r := Decode([]byte(someVolume+"  hostPath: {path: /srv}\n  persistentVolumeReclaimPolicy: Delete\n"), Options{NodeName: "n1", Origin: "a.yaml"})
	if len(r.Objects) != 1 || len(r.Problems) != 1 || !r.Problems[0].Warning || r.Problems[0].Line != 9 ||
		r.Problems[0].Message != "podd deletes nothing of a volume: Delete is taken for Retain" {
		t.Errorf("got %+v", r)
	}
}

func TestABrokenVolumeOrClaimKeepsItsLastGoodVersion(t *testing.T) {
	good := Decode([]byte(someVolume+"  hostPath: {path: /srv}\n---\n"+someClaim), Options{NodeName: "n1", Origin: "a.yaml"})
	for name, text := range map[string]string{
		"volume": someVolume + "---\n" + someClaim,
		"claim":  someVolume + "  hostPath: {path: /srv}\n---\n" + strings.Replace(someClaim, "1Gi", "much", 1),
		"header": strings.Replace(someVolume, "apiVersion: v1\n", "", 1) + "---\n" + strings.Replace(someClaim, "kind: P", "kin: P", 1),
	} {
		next := Decode([]byte(text), Options{NodeName: "n1", Origin: "a.yaml"})
		kept := Retain(next.Content, good.Content, next.Failed)
		if len(next.Objects)+len(kept.Objects) != 2 {
			t.Errorf("%s: kept %d beside %d: %+v", name, len(kept.Objects), len(next.Objects), next.Problems)
		}
	}
	again := Decode([]byte(someVolume+"  hostPath: {path: /srv}\n---\n"+strings.Replace(someClaim, "1Gi", "2Gi", 1)), Options{NodeName: "n1", Origin: "a.yaml"})
	reused := again.Reuse(good.Content)
	if reused.Objects[0] != good.Objects[0] || reused.Objects[1] == good.Objects[1] {
		t.Error("what did not change is the same pointer, what did is another")
	}
}

func TestAPodMayNameClaimsAndHaveDevices(t *testing.T) {
	r := Decode([]byte(`apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - {name: c, image: "localhost/a:1", volumeMounts: [{name: data, mountPath: /data}, {name: share, mountPath: /share}, {name: scratch, mountPath: /scratch}], volumeDevices: [{name: disk, devicePath: /dev/xvda}]}
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: data}}
  - {name: disk, persistentVolumeClaim: {claimName: disk}}
  - {name: share, nfs: {server: filer, path: /a}}
  - {name: scratch, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}
`), Options{NodeName: "n1", Origin: "a.yaml"})
	if len(r.Problems) > 0 || len(r.Pods) != 1 {
		t.Fatalf("got %+v", r.Problems)
	}
	var names []string
	for _, key := range pod.ReferencedObjects(r.Pods[0].Pod) {
		names = append(names, key.String())
	}
	want := "PersistentVolumeClaim default/data, PersistentVolumeClaim default/disk, PersistentVolumeClaim default/web-n1-scratch"
	if got := strings.Join(names, ", "); got != want {
		t.Errorf("got %s", got)
	}
}

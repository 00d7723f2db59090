package manifest

import (
	"strings"
	"testing"

	storagev1 "k8s.io/api/storage/v1"

	"podd/internal/pod"
)

const someDriver = `apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata:
  name: disk.example.com
  uid: a1b2
spec:
  attachRequired: false
`

const podOfDriver = `apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers: [{name: web, image: localhost/web:1, volumeMounts: [{name: data, mountPath: /data}]}]
  volumes:
  - name: data
    csi: {driver: disk.example.com}
`

func TestACSIDriverIsReadDefaultedAndClean(t *testing.T) {
	r := Decode([]byte(someDriver+"---\napiVersion: v1\nkind: List\nitems:\n- "+strings.ReplaceAll(strings.Replace(strings.TrimSuffix(someDriver, "\n"), "disk", "other", 1), "\n", "\n  ")+"\n---\n"+podOfDriver),
		Options{NodeName: "n1", Origin: "a.yaml"})
	if len(r.Problems) > 0 || len(r.Objects) != 2 || len(r.Pods) != 1 {
		t.Fatalf("got %+v", r)
	}
	d := r.Objects[0].Driver
	if d.UID != "" || d.Namespace != "" || *d.Spec.PodInfoOnMount || *d.Spec.FSGroupPolicy != storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy || d.Spec.VolumeLifecycleModes[0] != storagev1.VolumeLifecyclePersistent {
		t.Errorf("got %+v", d)
	}
	if key := r.Objects[1].Key(); key.String() != "CSIDriver other.example.com" {
		t.Errorf("got %v", key)
	}
	keys := pod.ReferencedObjects(r.Pods[0].Pod)
	if len(keys) != 1 || keys[0] != r.Objects[0].Key() {
		t.Errorf("the pod names %v", keys)
	}
}

func TestACSIDriverThatNeedsAClusterIsRefused(t *testing.T) {
	for name, tc := range map[string]struct{ old, text, field, message string }{
		"attached":            {"attachRequired: false", "attachRequired: true", "spec.attachRequired", "nothing attaches volumes without a cluster (attachRequired: true)"},
		"attached by default": {"attachRequired: false", "podInfoOnMount: true", "spec.attachRequired", "attachRequired: true, which is the default"},
		"inline is not":       {"attachRequired: false", "volumeLifecycleModes: [Ephemeral]", "", ""},
		"tokens":              {"attachRequired: false", "attachRequired: false\n  tokenRequests: [{audience: vault}]", "spec.tokenRequests", "only an apiserver can answer"},
		"upstream's":          {"attachRequired: false", "attachRequired: false\n  fsGroupPolicy: Some", "spec.fsGroupPolicy", `Unsupported value: "Some"`},
		"unknown":             {"attachRequired: false", "attachRequird: false", "spec.attachRequird", "unknown field"},
		"named badly":         {"name: disk.example.com", "name: Disk_", "metadata.name", "Invalid value"},
		"in a namespace":      {"uid: a1b2", "namespace: shop", "metadata.namespace", "not allowed on this type"},
		"of another version":  {"storage.k8s.io/v1", "v1", "apiVersion", `there is no kind "CSIDriver" in version "v1"`},
	} {
		t.Run(name, func(t *testing.T) {
			r := Decode([]byte(strings.Replace(someDriver, tc.old, tc.text, 1)), Options{NodeName: "n1", Origin: "a.yaml"})
			if tc.field == "" {
				if len(r.Problems) > 0 || len(r.Objects) != 1 {
					t.Errorf("got %+v", r)
				}
				return
			}
			if len(r.Objects) > 0 || len(r.Problems) == 0 || r.Problems[0].Field != tc.field || !strings.Contains(r.Problems[0].Message, tc.message) {
				t.Errorf("got %+v, want %s: %s", r.Problems, tc.field, tc.message)
			}
			if len(r.Problems) > 0 && tc.field != "apiVersion" && tc.field != "metadata.name" && r.Problems[0].Object != "CSIDriver disk.example.com" {
				t.Errorf("of %q", r.Problems[0].Object)
			}
		})
	}
}

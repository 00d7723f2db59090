package file

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"podd/internal/pod"
	"podd/podconfig/manifest"
)

func validateText(text string) Verdict {
	return Validate([]string{"-"}, manifest.Options{NodeName: "node1", Source: pod.SourceFile}, strings.NewReader(text))
}

// podOf mounts those claims.
func podOf(claims ...string) string {
	mounts, volumes := "", ""
	for _, c := range claims {
		mounts += fmt.Sprintf("    - mountPath: /%s\n      name: %s-pvc\n", c, c)
		volumes += fmt.Sprintf("  - name: %s-pvc\n    persistentVolumeClaim:\n      claimName: %s\n", c, c)
	}
	return "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\nspec:\n  containers:\n  - name: web\n    image: localhost/web:1\n    volumeMounts:\n" +
		mounts + "  volumes:\n" + volumes
}

// TestAClaimWithoutAVolumeHasOneExampleForItsFile: podman writes its named volumes as
// claims. What the example says is right, so that only the others are needed after it.
func TestAClaimWithoutAVolumeHasOneExampleForItsFile(t *testing.T) {
	const claims = `---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: db, labels: {app: web}}
spec:
  accessModes: [ReadWriteOnce, ReadOnlyMany]
  storageClassName: fast
  selector: {matchLabels: {disk: ssd}}
  resources: {requests: {storage: 5Gi}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: logs}
spec:
  accessModes: [ReadWriteOnce]
  volumeName: logs-disk
  resources: {requests: {storage: 1Gi}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: db}
spec:
  accessModes: [ReadWriteOnce]
  capacity: {storage: 1Gi}
  hostPath: {path: /srv/small}
`
	for what, tt := range map[string]struct {
		text string
		want []string // what is needed
	}{
		"podman's named volumes": {podOf("data", "logs", "tmp"),
			[]string{"needs: PersistentVolumeClaim default/data", "needs: PersistentVolumeClaim default/logs", "needs: PersistentVolumeClaim default/tmp"}},
		"claims that are there": {podOf("db", "logs") + claims,
			[]string{"needs: a PersistentVolume for the PersistentVolumeClaim default/db", "needs: a PersistentVolume for the PersistentVolumeClaim default/logs"}},
	} {
		for text, left := tt.text, tt.want; ; left = left[1:] {
			v := validateText(text)
			if len(v.Problems) > 0 {
				t.Fatalf("%s: got problems %v of\n%s", what, v.Problems, text)
			}
			var got []string
			for i, p := range v.Needs {
				got = append(got, p.Message)
				if (p.Example != "") != (i == 0) || p.Line == 0 || i > 0 && p.Hint != "as for "+v.Needs[0].Location() {
					t.Errorf("%s: got %+v, want the first with an example", what, p)
				}
			}
			if !slices.Equal(got, left) {
				t.Fatalf("%s: got %q, want %q", what, got, left)
			}
			if len(left) == 0 {
				break
			}
			text += v.Needs[0].Example
		}
	}
}

func TestAClaimThatADirectoryDoesNotSatisfyHasNoExample(t *testing.T) {
	v := validateText(`apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: disk}
spec: {volumeMode: Block, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`)
	if len(v.Needs) != 1 || v.Needs[0].Example != "" || v.Needs[0].Hint == "" {
		t.Errorf("got %+v", v.Needs)
	}
}

// TestAFileAloneIsToldWhatItNeeds: it may be in another file, so that nothing is wrong;
// a key of what the file has is not.
func TestAFileAloneIsToldWhatItNeeds(t *testing.T) {
	text := strings.Replace(podOf("data"), "    image:", "    envFrom:\n    - configMapRef: {name: settings}\n    env:\n    - name: A\n      valueFrom:\n        configMapKeyRef: {name: own, key: colr}\n    image:", 1) +
		"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: own}\ndata: {colour: blue}\n"
	v := validateText(text)
	if len(v.Problems) != 1 || v.Problems[0].Line != 13 || v.Problems[0].Hint != `did you mean "colour"?` {
		t.Errorf("got %v", v.Problems)
	}
	if len(v.Needs) != 2 || v.Needs[0].Line != 9 || v.Needs[0].Warning || v.Needs[0].Message != "needs: ConfigMap default/settings" || v.Needs[1].Line != 21 {
		t.Errorf("got %+v", v.Needs)
	}
}

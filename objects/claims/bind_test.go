package claims

import (
	"maps"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

func volume(name, size string, change ...func(*v1.PersistentVolume)) *v1.PersistentVolume {
	v := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PersistentVolumeSpec{
		Capacity: v1.ResourceList{v1.ResourceStorage: resource.MustParse(size)}, AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}}}
	for _, f := range change {
		f(v)
	}
	return v
}

func claim(name, size string, change ...func(*v1.PersistentVolumeClaim)) Claim {
	c := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: v1.PersistentVolumeClaimSpec{
		Resources:   v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse(size)}},
		AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}}}
	for _, f := range change {
		f(c)
	}
	return Claim{PersistentVolumeClaim: c}
}

func reserve(claim string) func(*v1.PersistentVolume) {
	return func(v *v1.PersistentVolume) { v.Spec.ClaimRef = &v1.ObjectReference{Namespace: "shop", Name: claim} }
}

func volumeClass(name string) func(*v1.PersistentVolume) {
	return func(v *v1.PersistentVolume) { v.Spec.StorageClassName = name }
}

func class(name string) func(*v1.PersistentVolumeClaim) {
	return func(c *v1.PersistentVolumeClaim) { c.Spec.StorageClassName = &name }
}

func wants(name string) func(*v1.PersistentVolumeClaim) {
	return func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = name }
}

func volumeModes(modes ...v1.PersistentVolumeAccessMode) func(*v1.PersistentVolume) {
	return func(v *v1.PersistentVolume) { v.Spec.AccessModes = modes }
}

func modes(modes ...v1.PersistentVolumeAccessMode) func(*v1.PersistentVolumeClaim) {
	return func(c *v1.PersistentVolumeClaim) { c.Spec.AccessModes = modes }
}

func on(node string) func(*v1.PersistentVolume) {
	return func(v *v1.PersistentVolume) {
		v.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
			MatchExpressions: []v1.NodeSelectorRequirement{{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{node}}}}}}}
	}
}

var block = v1.PersistentVolumeBlock

func volumeBlock(v *v1.PersistentVolume)     { v.Spec.VolumeMode = &block }
func claimBlock(c *v1.PersistentVolumeClaim) { c.Spec.VolumeMode = &block }

func fast(v *v1.PersistentVolume) { v.Labels = map[string]string{"disk": "fast"} }
func selectFast(c *v1.PersistentVolumeClaim) {
	c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"disk": "fast"}}
}

// The choice and the messages are upstream's (FindMatchingVolume, syncUnboundClaim).
func TestAClaimFindsItsVolume(t *testing.T) {
	type volumes = []*v1.PersistentVolume
	for name, tc := range map[string]struct {
		volumes volumes
		claim   Claim
		want    string // the volume, or
		why     string
	}{
		"the smallest that is large enough": {volumes{volume("big", "10Gi"), volume("small", "1Gi"), volume("right", "3Gi")}, claim("c", "2Gi"), "right", ""},
		"exactly as large":                  {volumes{volume("a", "2Gi")}, claim("c", "2048Mi"), "a", ""},
		"none large enough": {volumes{volume("small", "1Gi")}, claim("c", "2Gi"), "",
			`no persistent volumes available for this claim and no storage class is set (volume "small": requested PV is too small)`},
		"none at all":             {nil, claim("c", "2Gi"), "", "no persistent volumes available for this claim and no storage class is set"},
		"of its class":            {volumes{volume("plain", "1Gi"), volume("classy", "5Gi", volumeClass("fast"))}, claim("c", "1Gi", class("fast")), "classy", ""},
		"no class matches none":   {volumes{volume("classy", "1Gi", volumeClass("fast"))}, claim("c", "1Gi"), "", `(volume "classy": storageClassName does not match)`},
		"a class without volumes": {nil, claim("c", "1Gi", class("fast")), "", `nothing provisions volumes of storage class "fast" here`},
		"the class as annotation": {volumes{volume("a", "1Gi", func(v *v1.PersistentVolume) {
			v.Annotations = map[string]string{v1.BetaStorageClassAnnotation: "fast"}
		})}, claim("c", "1Gi", class("fast")), "a", ""},
		"every access mode": {volumes{volume("a", "1Gi")}, claim("c", "1Gi", modes(v1.ReadWriteOnce, v1.ReadWriteMany)), "", "incompatible accessMode"},
		"the fewest access modes before the smallest": {volumes{volume("many", "1Gi", volumeModes(v1.ReadWriteOnce, v1.ReadWriteMany)), volume("one", "9Gi")},
			claim("c", "1Gi"), "one", ""},
		"a device":                   {volumes{volume("files", "1Gi"), volume("device", "5Gi", volumeBlock)}, claim("c", "1Gi", claimBlock), "device", ""},
		"a device for files":         {volumes{volume("device", "5Gi", volumeBlock)}, claim("c", "1Gi"), "", "incompatible volumeMode"},
		"by its labels":              {volumes{volume("slow", "1Gi"), volume("quick", "5Gi", fast)}, claim("c", "1Gi", selectFast), "quick", ""},
		"by labels without a match":  {volumes{volume("slow", "1Gi")}, claim("c", "1Gi", selectFast), "", "its labels do not match the selector"},
		"reserved before the better": {volumes{volume("a", "1Gi"), volume("b", "9Gi", reserve("c"), volumeClass("x"))}, claim("c", "1Gi"), "b", ""},
		"reserved and too small":     {volumes{volume("b", "1Gi", reserve("c"))}, claim("c", "2Gi"), "", `volume "b": requested PV is too small`},
		"reserved for another":       {volumes{volume("a", "1Gi", reserve("d"))}, claim("c", "1Gi"), "", "already bound to a different claim (shop/d)"},
		"by name":                    {volumes{volume("a", "1Gi"), volume("b", "9Gi")}, claim("c", "1Gi", wants("b")), "b", ""},
		"by the name of no volume":   {volumes{volume("a", "1Gi")}, claim("c", "1Gi", wants("b")), "", `persistentvolume "b" not found`},
		"by name and too small":      {volumes{volume("b", "1Gi")}, claim("c", "2Gi", wants("b")), "", `Cannot bind to requested volume "b": requested PV is too small`},
		"by name, of another class":  {volumes{volume("b", "1Gi")}, claim("c", "1Gi", wants("b"), class("x")), "", `Cannot bind to requested volume "b": storageClassName does not match`},
		"by name, reserved":          {volumes{volume("b", "1Gi", reserve("d"))}, claim("c", "1Gi", wants("b")), "", `volume "b" already bound to a different claim (shop/d)`},
		"both by name":               {volumes{volume("b", "1Gi", reserve("c"))}, claim("c", "2Gi", wants("b"), class("x")), "b", ""},
		"of this node":               {volumes{volume("a", "1Gi", on("n2")), volume("b", "9Gi", on("n1"))}, claim("c", "1Gi"), "b", ""},
		"of another node": {volumes{volume("a", "1Gi", on("n2"))}, claim("c", "1Gi"), "",
			"no matching NodeSelectorTerms: the volume's nodeAffinity is for another node"},
	} {
		t.Run(name, func(t *testing.T) {
			r := Bind(Input{Volumes: tc.volumes, Claims: []Claim{tc.claim}, NodeLabels: map[string]string{v1.LabelHostname: "n1"}})
			got := r.Claims[Key{"shop", "c"}]
			if got.VolumeName != tc.want || !strings.Contains(got.Message, tc.why) || (got.Phase == v1.ClaimBound) != (tc.want != "") {
				t.Errorf("got %+v, want %q, %q", got, tc.want, tc.why)
			}
			if tc.want != "" && (r.Bound[tc.want] != tc.claim.ref() || r.Volumes[tc.want].Phase != v1.VolumeBound) {
				t.Errorf("got %+v, %+v", r.Bound, r.Volumes)
			}
		})
	}
}

func TestANamedVolumeOfAnotherNodeIsBoundWithAMessage(t *testing.T) {
	r := Bind(Input{Volumes: []*v1.PersistentVolume{volume("a", "1Gi", on("n2"))}, Claims: []Claim{claim("c", "1Gi", wants("a"))},
		NodeLabels: map[string]string{v1.LabelHostname: "n1"}})
	got := r.Claims[Key{"shop", "c"}]
	if got.Phase != v1.ClaimBound || !got.NodeMismatch || !strings.HasPrefix(got.Message, "no matching NodeSelectorTerms") {
		t.Errorf("got %+v", got)
	}
	if got := Bind(Input{Volumes: []*v1.PersistentVolume{volume("a", "1Gi", on("n2"))}, Claims: []Claim{claim("c", "1Gi")}}); got.Claims[Key{"shop", "c"}].NodeMismatch {
		t.Error("without the node's labels, a volume must match")
	}
}

func TestAVolumeIsBoundToOneClaim(t *testing.T) {
	in := Input{Volumes: []*v1.PersistentVolume{volume("a", "1Gi"), volume("b", "2Gi")}, Claims: []Claim{claim("z", "1Gi", wants("a")), claim("y", "1Gi"), claim("x", "1Gi")}}
	got := Bind(in)
	if got.Claims[Key{"shop", "z"}].VolumeName != "a" || got.Claims[Key{"shop", "x"}].VolumeName != "b" {
		t.Errorf("got %+v, want the claim that names its volume first, and then by name", got.Claims)
	}
	if y := got.Claims[Key{"shop", "y"}]; y.Phase != v1.ClaimPending || !strings.Contains(y.Message, "different claim (shop/z); volume \"b\": already bound to a different claim (shop/x)") {
		t.Errorf("got %+v", y)
	}
}

func TestABindingSurvivesEdits(t *testing.T) {
	key := Key{"shop", "c"}
	before := Bind(Input{Volumes: []*v1.PersistentVolume{volume("a", "5Gi")}, Claims: []Claim{claim("c", "1Gi")}})
	for name, tc := range map[string]struct {
		in     Input
		claim  string // its volume
		phase  v1.PersistentVolumeClaimPhase
		volume v1.PersistentVolumePhase
		bound  bool // volume a is still bound
	}{
		"a better volume":           {Input{Volumes: []*v1.PersistentVolume{volume("a", "5Gi"), volume("b", "1Gi")}, Claims: []Claim{claim("c", "1Gi")}}, "a", v1.ClaimBound, v1.VolumeBound, true},
		"a larger wish":             {Input{Volumes: []*v1.PersistentVolume{volume("a", "5Gi")}, Claims: []Claim{claim("c", "9Gi")}}, "a", v1.ClaimBound, v1.VolumeBound, true},
		"another class":             {Input{Volumes: []*v1.PersistentVolume{volume("a", "5Gi", volumeClass("x"))}, Claims: []Claim{claim("c", "1Gi")}}, "a", v1.ClaimBound, v1.VolumeBound, true},
		"another name":              {Input{Volumes: []*v1.PersistentVolume{volume("a", "5Gi"), volume("b", "5Gi")}, Claims: []Claim{claim("c", "1Gi", wants("b"))}}, "a", v1.ClaimBound, v1.VolumeBound, true},
		"the volume goes":           {Input{Claims: []Claim{claim("c", "1Gi")}}, "a", v1.ClaimLost, "", true},
		"the volume goes for later": {Input{Claims: []Claim{claim("c", "1Gi")}, Volumes: []*v1.PersistentVolume{volume("b", "5Gi")}}, "a", v1.ClaimLost, "", true},
		"the claim goes":            {Input{Volumes: []*v1.PersistentVolume{volume("a", "5Gi")}}, "", "", v1.VolumeReleased, true},
		"both go":                   {Input{}, "", "", "", false},
		"both are yet to come":      {Input{Unseen: map[string]bool{"a": true}}, "", "", "", true},
		"given to another":          {Input{Volumes: []*v1.PersistentVolume{volume("a", "5Gi", reserve("d"))}, Claims: []Claim{claim("c", "1Gi")}}, "", v1.ClaimPending, v1.VolumeAvailable, false},
		"given to it":               {Input{Volumes: []*v1.PersistentVolume{volume("a", "5Gi", reserve("c"))}, Claims: []Claim{claim("c", "1Gi")}}, "a", v1.ClaimBound, v1.VolumeBound, true},
	} {
		t.Run(name, func(t *testing.T) {
			tc.in.Bound = maps.Clone(before.Bound)
			r := Bind(tc.in)
			if got := r.Claims[key]; got.VolumeName != tc.claim || got.Phase != tc.phase {
				t.Errorf("claim: got %+v", got)
			}
			if got := r.Volumes["a"]; got.Phase != tc.volume {
				t.Errorf("volume: got %+v", got)
			}
			if _, bound := r.Bound["a"]; bound != tc.bound {
				t.Errorf("got %v", r.Bound)
			}
		})
	}
}

// It is kept for a claim of the same name, and for the same pod if the claim was of an
// ephemeral volume.
func TestAReleasedVolumeIsKept(t *testing.T) {
	of := func(uid string) Claim {
		c := claim("web-scratch", "1Gi")
		c.Owner = pod.UID(uid)
		return c
	}
	volumes := []*v1.PersistentVolume{volume("a", "1Gi")}
	first := Bind(Input{Volumes: volumes, Claims: []Claim{of("1")}})
	if first.Claims[Key{"shop", "web-scratch"}].VolumeName != "a" {
		t.Fatalf("got %+v", first)
	}
	released := Bind(Input{Volumes: volumes, Bound: first.Bound, Claims: []Claim{claim("other", "1Gi")}})
	if released.Volumes["a"].Phase != v1.VolumeReleased || released.Claims[Key{"shop", "other"}].Phase != v1.ClaimPending {
		t.Errorf("got %+v", released)
	}
	another := Bind(Input{Volumes: volumes, Bound: released.Bound, Claims: []Claim{of("2")}})
	if another.Volumes["a"].Phase != v1.VolumeReleased || another.Claims[Key{"shop", "web-scratch"}].Phase != v1.ClaimPending {
		t.Errorf("another pod of that name got the data of the first: %+v", another)
	}
	back := Bind(Input{Volumes: volumes, Bound: another.Bound, Claims: []Claim{of("1")}})
	if back.Claims[Key{"shop", "web-scratch"}].VolumeName != "a" {
		t.Errorf("got %+v", back)
	}
}

func TestTheMessageNamesOnlyAFewVolumes(t *testing.T) {
	in := Input{Claims: []Claim{claim("c", "5Gi")}}
	for _, name := range []string{"f", "e", "d", "c", "b", "a"} {
		in.Volumes = append(in.Volumes, volume(name, "1Gi"))
	}
	got := Bind(in).Claims[Key{"shop", "c"}].Message
	if !strings.Contains(got, `volume "d": requested PV is too small; and 2 more)`) || strings.Contains(got, `"e"`) {
		t.Errorf("got %s", got)
	}
}

package claims

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// findNamed returns the volume that a claim names.
func (b *binder) findNamed(c Claim) (*v1.PersistentVolume, string) {
	name := c.Spec.VolumeName
	if name == "" {
		return nil, ""
	}
	v := b.volumes[name]
	if v == nil {
		return nil, notFound(name)
	}
	if holder := b.otherHolder(v, c); holder != "" {
		return nil, fmt.Sprintf("volume %q already bound to a different claim (%s)", name, holder)
	}
	if v.Spec.ClaimRef == nil { // if both name each other, nothing else is checked
		if why := mismatch(v, c); why != "" {
			return nil, fmt.Sprintf("Cannot bind to requested volume %q: %s", name, why)
		}
	}
	return v, ""
}

// findReserved returns the volume that names the claim.
func (b *binder) findReserved(c Claim) (*v1.PersistentVolume, string) {
	if c.Spec.VolumeName != "" {
		return nil, ""
	}
	for _, v := range b.candidates() {
		if reservedFor(v, c.ref().Key) && b.otherHolder(v, c) == "" && mismatch(v, c) == "" {
			return v, ""
		}
	}
	return nil, ""
}

// findBest returns the best available volume, or says why there is none.
func (b *binder) findBest(c Claim) (*v1.PersistentVolume, string) {
	if c.Spec.VolumeName != "" {
		return nil, ""
	}
	var whys []string
	for _, v := range b.candidates() {
		why := mismatch(v, c)
		if holder := b.otherHolder(v, c); holder != "" {
			why = "already bound to a different claim (" + holder + ")"
		}
		if why == "" && !selectorMatches(c, v) {
			why = "its labels do not match the selector"
		}
		if err := CheckNode(v, b.in.NodeLabels); why == "" && err != nil {
			why = err.Error()
		}
		if why == "" {
			return v, ""
		}
		whys = append(whys, fmt.Sprintf("volume %q: %s", v.Name, why))
	}
	return nil, noVolumeMessage(c, whys)
}

// noVolumeMessage returns the PV controller's message for a claim without a volume, followed by the
// reasons.
func noVolumeMessage(c Claim, whys []string) string {
	text := "no persistent volumes available for this claim and no storage class is set"
	if class := classOf(c.Annotations, c.Spec.StorageClassName); class != "" {
		text = fmt.Sprintf("no persistent volumes available for this claim, and nothing provisions volumes of storage class %q here", class)
	}
	const few = 4
	slices.Sort(whys)
	if more := len(whys) - few; more > 0 {
		whys = append(whys[:few], fmt.Sprintf("and %d more", more))
	}
	if len(whys) == 0 {
		return text
	}
	return text + " (" + strings.Join(whys, "; ") + ")"
}

// candidates returns all volumes, the best first: sorted by number of access modes, size
// and name.
func (b *binder) candidates() []*v1.PersistentVolume {
	if b.sorted == nil {
		b.sorted = slices.SortedFunc(slices.Values(b.in.Volumes), func(x, y *v1.PersistentVolume) int {
			a, b := x.Spec.Capacity[v1.ResourceStorage], y.Spec.Capacity[v1.ResourceStorage]
			return cmp.Or(cmp.Compare(len(x.Spec.AccessModes), len(y.Spec.AccessModes)), a.Cmp(b), cmp.Compare(x.Name, y.Name))
		})
	}
	return b.sorted
}

// otherHolder returns the other claim that a volume is bound to or reserved for; "" if none.
func (b *binder) otherHolder(v *v1.PersistentVolume, c Claim) string {
	if ref, taken := b.Bound[v.Name]; taken && ref != c.ref() {
		return ref.Namespace + "/" + ref.Name
	}
	if to := v.Spec.ClaimRef; to != nil && !reservedFor(v, c.ref().Key) {
		return to.Namespace + "/" + to.Name
	}
	return ""
}

func reservedFor(v *v1.PersistentVolume, key Key) bool {
	to := v.Spec.ClaimRef
	return to != nil && to.Name == key.Name && to.Namespace == key.Namespace
}

// mismatch says, in the PV controller's words, why a volume does not satisfy a claim.
func mismatch(v *v1.PersistentVolume, c Claim) string {
	wanted, has := c.Spec.Resources.Requests[v1.ResourceStorage], v.Spec.Capacity[v1.ResourceStorage]
	switch {
	case has.Cmp(wanted) < 0:
		return "requested PV is too small"
	case !reservedFor(v, c.ref().Key) && classOf(v.Annotations, &v.Spec.StorageClassName) != classOf(c.Annotations, c.Spec.StorageClassName):
		return "storageClassName does not match"
	case value(v.Spec.VolumeAttributesClassName) != value(c.Spec.VolumeAttributesClassName):
		return "volumeAttributesClassName does not match"
	case volumeModeOf(v.Spec.VolumeMode) != volumeModeOf(c.Spec.VolumeMode):
		return "incompatible volumeMode"
	}
	for _, m := range c.Spec.AccessModes {
		if !slices.Contains(v.Spec.AccessModes, m) {
			return "incompatible accessMode"
		}
	}
	return ""
}

// classOf returns the storage class; the annotation, which predates the field, wins.
func classOf(annotations map[string]string, class *string) string {
	if old, ok := annotations[v1.BetaStorageClassAnnotation]; ok {
		return old
	}
	return value(class)
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func volumeModeOf(m *v1.PersistentVolumeMode) v1.PersistentVolumeMode {
	if m == nil {
		return v1.PersistentVolumeFilesystem
	}
	return *m
}

func selectorMatches(c Claim, v *v1.PersistentVolume) bool {
	if c.Spec.Selector == nil {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(c.Spec.Selector) // valid, as the claim is
	return err == nil && selector.Matches(labels.Set(v.Labels))
}

// errNodeMismatch is upstream's message, followed by its meaning.
var errNodeMismatch = errors.New("no matching NodeSelectorTerms: the volume's nodeAffinity is for another node")

// CheckNode says, in upstream's words, why a volume cannot be used on the node with these
// labels; nil labels match every volume.
func CheckNode(v *v1.PersistentVolume, node map[string]string) error {
	affinity := v.Spec.NodeAffinity
	if node == nil || affinity == nil || affinity.Required == nil {
		return nil
	}
	terms, err := nodeaffinity.NewNodeSelector(affinity.Required)
	if err != nil {
		return err
	}
	if !terms.Match(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: node[v1.LabelHostname], Labels: node}}) {
		return errNodeMismatch
	}
	return nil
}

func notFound(volume string) string { return fmt.Sprintf("persistentvolume %q not found", volume) }

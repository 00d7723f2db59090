package manifest

import (
	"encoding/json"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// ExampleClaim is a claim as most people need one.
func ExampleClaim(namespace, name string) *v1.PersistentVolumeClaim {
	class := ""
	return &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1.PersistentVolumeClaimSpec{
		AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, StorageClassName: &class,
		Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
}

// ExampleVolume is a volume that a claim can have: a directory of the node, reserved for it;
// nil for a claim that a directory does not satisfy. taken says whether there is a volume
// of that name.
func ExampleVolume(c *v1.PersistentVolumeClaim, taken func(name string) bool) *v1.PersistentVolume {
	block := c.Spec.VolumeMode != nil && *c.Spec.VolumeMode == v1.PersistentVolumeBlock
	size := c.Spec.Resources.Requests[v1.ResourceStorage]
	name := c.Spec.VolumeName
	if name == "" {
		name = c.Name
		for i := 2; taken(name); i++ {
			name = fmt.Sprintf("%s-%d", c.Name, i)
		}
	}
	if block || size.IsZero() || taken(name) || len(validation.IsDNS1123Subdomain(name)) > 0 || len(validation.IsDNS1123Subdomain(c.Name)) > 0 {
		return nil
	}
	kind := v1.HostPathDirectoryOrCreate
	v := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PersistentVolumeSpec{
		Capacity: v1.ResourceList{v1.ResourceStorage: size}, AccessModes: c.Spec.AccessModes,
		ClaimRef:               &v1.ObjectReference{Namespace: c.Namespace, Name: c.Name},
		PersistentVolumeSource: v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/srv/" + name, Type: &kind}},
	}}
	if c.Spec.StorageClassName != nil {
		v.Spec.StorageClassName = *c.Spec.StorageClassName
	}
	if s := c.Spec.Selector; s != nil {
		v.Labels = s.MatchLabels
	}
	return v
}

// ExampleManifest is a volume and, unless it is nil, its claim, as a person would append them to
// a file.
func ExampleManifest(v *v1.PersistentVolume, c *v1.PersistentVolumeClaim) string {
	var b strings.Builder
	size := v.Spec.Capacity[v1.ResourceStorage]
	fmt.Fprintf(&b, "---\napiVersion: v1\nkind: PersistentVolume\nmetadata:\n  name: %s\n", v.Name)
	if len(v.Labels) > 0 {
		fmt.Fprintf(&b, "  labels: %s\n", flow(v.Labels))
	}
	fmt.Fprintf(&b, "spec:\n  capacity: {storage: %s}\n  accessModes: %s\n", size.String(), flow(v.Spec.AccessModes))
	if v.Spec.StorageClassName != "" {
		fmt.Fprintf(&b, "  storageClassName: %s\n", flow(v.Spec.StorageClassName))
	}
	fmt.Fprintf(&b, "  claimRef: {namespace: %s, name: %s}\n", v.Spec.ClaimRef.Namespace, v.Spec.ClaimRef.Name)
	fmt.Fprintf(&b, "  hostPath: {path: %s, type: %s}\n", v.Spec.HostPath.Path, *v.Spec.HostPath.Type)
	if c == nil {
		return b.String()
	}
	size = c.Spec.Resources.Requests[v1.ResourceStorage]
	fmt.Fprintf(&b, "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata:\n  name: %s\n  namespace: %s\nspec:\n", c.Name, c.Namespace)
	fmt.Fprintf(&b, "  accessModes: %s\n  storageClassName: \"\"\n  resources: {requests: {storage: %s}}\n", flow(c.Spec.AccessModes), size.String())
	return b.String()
}

// flow is a value on one line.
func flow(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return `""` // of no type that is passed here
	}
	return string(text)
}

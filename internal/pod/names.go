package pod

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// CheckNames returns an error for a pod with an invalid UID or an invalid name of its own,
// its containers or its volumes: podd makes paths of them. Manifests pass upstream's
// validation, which checks the same. An apiserver checks them, too, but whoever answers in
// its place, or writes podd's files, could otherwise choose directories of this host.
func CheckNames(p *v1.Pod) error {
	switch {
	case !IsFileName(p.UID):
		return fmt.Errorf("%.100q is not a UID that can be the name of a directory", p.UID)
	case len(validation.IsDNS1123Subdomain(p.Name)) > 0:
		return fmt.Errorf("%.100q is not the name of a pod", p.Name)
	case len(validation.IsDNS1123Label(p.Namespace)) > 0:
		return fmt.Errorf("%.100q is not the name of a namespace", p.Namespace)
	}
	for c := range ContainerSpecs(&p.Spec) {
		if len(validation.IsDNS1123Label(c.Name)) > 0 {
			return fmt.Errorf("%.100q is not the name of a container", c.Name)
		}
	}
	for i := range p.Spec.Volumes {
		if name := p.Spec.Volumes[i].Name; len(validation.IsDNS1123Label(name)) > 0 {
			return fmt.Errorf("%.100q is not the name of a volume", name)
		}
	}
	return nil
}

// IsFileName says whether a UID can be the name of a file.
func IsFileName(uid UID) bool {
	return len(uid) <= 128 && len(validation.IsDNS1123Subdomain(string(uid))) == 0
}

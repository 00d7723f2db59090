package manifest

import (
	"fmt"
	"slices"

	storagev1 "k8s.io/api/storage/v1"

	"podd/internal/podapi"
)

// completeDriver makes of a decoded CSIDriver in place what an apiserver would store.
func completeDriver(d *storagev1.CSIDriver) {
	namespace := d.Namespace
	cleanObject(&d.ObjectMeta)
	d.Namespace = namespace // none, or validation says so
	podapi.DefaultCSIDriver(d)
}

// unsupportedDriver is what a valid CSIDriver asks for and only a cluster has.
func unsupportedDriver(d *storagev1.CSIDriver, lines map[string]int) []fault {
	var out []fault
	refuse := func(path, message, hint string) {
		out = append(out, fault{line: lineOf(lines, path), field: path, message: message, hint: hint})
	}
	// Inline volumes are never attached.
	if *d.Spec.AttachRequired && slices.Contains(d.Spec.VolumeLifecycleModes, storagev1.VolumeLifecyclePersistent) {
		written := "attachRequired: true"
		if lines["spec.attachRequired"] == 0 {
			written += ", which is the default"
		}
		refuse("spec.attachRequired", fmt.Sprintf("nothing attaches volumes without a cluster (%s)", written),
			"write attachRequired: false if the driver's volumes are on this node already, or have it make inline volumes only: volumeLifecycleModes: [Ephemeral]")
	}
	if len(d.Spec.TokenRequests) > 0 {
		refuse("spec.tokenRequests", "only an apiserver can answer requests for tokens", "remove them: a driver that needs tokens needs a cluster")
	}
	return out
}

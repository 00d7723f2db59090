package manifest

import (
	"fmt"
	"slices"

	storagev1 "k8s.io/api/storage/v1"

	"podd/internal/podapi"
	"podd/internal/strictyaml"
	"podd/podconfig/manifest/advice"
)

// completeDriver makes of a decoded CSIDriver in place what an apiserver would store.
func completeDriver(d *storagev1.CSIDriver) {
	namespace := d.Namespace
	cleanObject(&d.ObjectMeta)
	d.Namespace = namespace // none, or validation says so
	podapi.DefaultCSIDriver(d)
}

// unsupportedDriver is what a valid CSIDriver asks for and only a cluster has.
func unsupportedDriver(d *storagev1.CSIDriver, text *strictyaml.Decoded) []advice.Fault {
	var out []advice.Fault
	refuse := func(path, message, hint string) {
		out = append(out, advice.Fault{Line: text.Line(path), Field: path, Message: message, Hint: hint})
	}
	// Inline volumes are never attached.
	if *d.Spec.AttachRequired && slices.Contains(d.Spec.VolumeLifecycleModes, storagev1.VolumeLifecyclePersistent) {
		written := "attachRequired: true"
		if text.Lines["spec.attachRequired"] == 0 {
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

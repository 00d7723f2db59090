package manifest

import (
	"fmt"
	"reflect"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
	"podd/internal/podapi"
	"podd/internal/strictyaml"
	"podd/podconfig/manifest/advice"
)

// completeVolume makes of a decoded PersistentVolume in place what an apiserver
// would store. One that was exported from a cluster is reserved for the claim of
// that name, not for the one of that UID, which only the cluster has.
func completeVolume(v *v1.PersistentVolume) {
	namespace := v.Namespace
	cleanObject(&v.ObjectMeta)
	v.Namespace = namespace // none, or validation says so
	v.Status = v1.PersistentVolumeStatus{}
	if ref := v.Spec.ClaimRef; ref != nil {
		ref.UID, ref.ResourceVersion = "", ""
	}
	podapi.DefaultVolume(v)
}

// unsupportedVolume is what podd does not have of a valid PersistentVolume.
func unsupportedVolume(v *v1.PersistentVolume, text *strictyaml.Decoded) []advice.Fault {
	source := &v.Spec.PersistentVolumeSource
	if source.HostPath != nil && len(v.Spec.MountOptions) > 0 {
		const path = "spec.mountOptions"
		return []advice.Fault{{Line: text.Line(path), Field: path, Message: "Forbidden: may not specify mount options for this volume type",
			Hint: "remove them: a hostPath is mounted as it is; use a local volume for options"}}
	}
	if source.HostPath != nil || source.Local != nil || source.NFS != nil || source.CSI != nil {
		return nil
	}
	kind := volumeKind(source)
	path := "spec." + kind
	return []advice.Fault{{Line: text.Line(path), Field: path, Message: "podd has no " + kind + " volumes", Hint: volumeAlternative(kind)}}
}

// objectWarnings are the warnings about an object that can be used.
func objectWarnings(o *pod.Object, text *strictyaml.Decoded) []advice.Fault {
	v := o.Volume
	if v == nil || v.Spec.PersistentVolumeReclaimPolicy == v1.PersistentVolumeReclaimRetain {
		return nil
	}
	const path = "spec.persistentVolumeReclaimPolicy"
	return []advice.Fault{{Line: text.Line(path), Field: path,
		Message: fmt.Sprintf("podd deletes nothing of a volume: %s is taken for Retain", v.Spec.PersistentVolumeReclaimPolicy),
		Hint:    "write Retain; a volume whose claim is gone is kept for it, until the volume's document is removed and added again"}}
}

// volumeKind is the name of the field that says what a volume is; source is a
// pointer to a struct that has one for each kind.
func volumeKind(source any) string {
	v := reflect.ValueOf(source).Elem()
	known := strictyaml.FieldsOf(v.Type())
	for _, name := range known.Names {
		if !v.FieldByIndex(known.Index[name]).IsNil() {
			return name
		}
	}
	return "" // upstream's defaulting has made it an emptyDir
}

// drivers are the in-tree kinds of volume that clusters have had CSI drivers for
// since.
var drivers = map[string]string{
	"awsElasticBlockStore": "ebs.csi.aws.com", "azureDisk": "disk.csi.azure.com", "azureFile": "file.csi.azure.com", "cinder": "cinder.csi.openstack.org",
	"gcePersistentDisk": "pd.csi.storage.gke.io", "portworxVolume": "pxd.portworx.com", "vsphereVolume": "csi.vsphere.vmware.com",
	"rbd": "rbd.csi.ceph.com", "cephfs": "cephfs.csi.ceph.com",
}

// volumeAlternative says what serves in place of a kind of volume that podd does not have.
func volumeAlternative(kind string) string {
	if driver := drivers[kind]; driver != "" {
		return "use its CSI driver, " + driver + ", with a PersistentVolume of kind csi"
	}
	switch kind {
	case "gitRepo":
		return "clone it into an emptyDir volume in an init container: Kubernetes no longer supports gitRepo"
	case "flexVolume":
		return "Kubernetes has deprecated it in favour of CSI; use a CSI driver, or mount it on the node and use a hostPath volume"
	}
	return "mount it on the node, and use a hostPath volume or a local PersistentVolume"
}

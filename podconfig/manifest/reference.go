package manifest

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// reference is a field that refers to an object which only an apiserver has. Since
// v1.34 upstream's kubelet rejects such static pods (PreventStaticPodAPIReferences),
// and those that refer to ConfigMaps, Secrets and claims, which podd reads beside the
// Pods. It reports the first kind only; podd reports every field.
type reference struct{ path, resource, hint string }

const clusterHint = "this needs a cluster; remove the field"

func apiReferences(p *v1.Pod) []reference {
	var out []reference
	add := func(path, resource, hint string) { out = append(out, reference{path, resource, hint}) }
	switch {
	case p.Spec.ServiceAccountName != "":
		add("spec.serviceAccountName", "serviceaccounts", clusterHint)
	case p.Spec.DeprecatedServiceAccount != "": // the same under its old name
		add("spec.serviceAccount", "serviceaccounts", clusterHint)
	}
	for i := range p.Spec.ResourceClaims {
		add(fmt.Sprintf("spec.resourceClaims[%d]", i), "resourceclaims", clusterHint)
	}
	for i := range p.Spec.Volumes {
		volumeReference(fmt.Sprintf("spec.volumes[%d]", i), &p.Spec.Volumes[i].VolumeSource, add)
	}
	return out
}

func volumeReference(path string, v *v1.VolumeSource, add func(path, resource, hint string)) {
	const noSecret = "podd has no volumes of this kind; mount it on the node and use a hostPath volume"
	switch {
	case v.Glusterfs != nil:
		add(path+".glusterfs", "endpoints (via glusterFS volumes)", noSecret)
	case v.AzureFile != nil:
		add(path+".azureFile", "secrets (via azureFile volumes)", noSecret)
	case v.CephFS != nil && v.CephFS.SecretRef != nil:
		add(path+".cephfs.secretRef", "secrets", noSecret)
	case v.RBD != nil && v.RBD.SecretRef != nil:
		add(path+".rbd.secretRef", "secrets", noSecret)
	case v.ISCSI != nil && v.ISCSI.SecretRef != nil:
		add(path+".iscsi.secretRef", "secrets", noSecret)
	case v.Cinder != nil && v.Cinder.SecretRef != nil:
		add(path+".cinder.secretRef", "secrets", noSecret)
	case v.FlexVolume != nil && v.FlexVolume.SecretRef != nil:
		add(path+".flexVolume.secretRef", "secrets", noSecret)
	case v.ScaleIO != nil && v.ScaleIO.SecretRef != nil:
		add(path+".scaleIO.secretRef", "secrets", noSecret)
	case v.StorageOS != nil && v.StorageOS.SecretRef != nil:
		add(path+".storageos.secretRef", "secrets", noSecret)
	case v.Projected != nil:
		projectedReferences(path+".projected", v.Projected.Sources, add)
	}
}

func projectedReferences(path string, sources []v1.VolumeProjection, add func(path, resource, hint string)) {
	for i, s := range sources {
		at := fmt.Sprintf("%s.sources[%d]", path, i)
		switch {
		case s.ServiceAccountToken != nil:
			add(at+".serviceAccountToken", "serviceaccounts (via projected volumes)", clusterHint)
		case s.ClusterTrustBundle != nil:
			add(at+".clusterTrustBundle", "clustertrustbundles", clusterHint)
		case s.PodCertificate != nil:
			add(at+".podCertificate", "podcertificates", clusterHint)
		}
	}
}

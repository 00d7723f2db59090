package manifest

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// reference is a field that names an object of an apiserver. Upstream's kubelet
// refuses such static pods since v1.34 (PreventStaticPodAPIReferences) and names
// the first kind only; podd names every field.
type reference struct{ path, resource, hint string }

const (
	laterHint   = "podd will read ConfigMap and Secret documents beside the manifests in a later version; until then use env values, or a file of the node with a hostPath volume"
	clusterHint = "this needs a cluster; remove the field"
)

func apiReferences(p *v1.Pod) []reference {
	var out []reference
	add := func(path, resource, hint string) { out = append(out, reference{path, resource, hint}) }
	switch {
	case p.Spec.ServiceAccountName != "":
		add("spec.serviceAccountName", "serviceaccounts", clusterHint)
	case p.Spec.DeprecatedServiceAccount != "": // the same under its old name
		add("spec.serviceAccount", "serviceaccounts", clusterHint)
	}
	for i := range p.Spec.ImagePullSecrets {
		add(fmt.Sprintf("spec.imagePullSecrets[%d]", i), "secrets",
			"remove it, and give the node the credentials: a docker config.json in podd's --root-dir (/var/lib/podd), or a credential provider plugin")
	}
	visitContainers(p, func(path string, c *v1.Container) { containerReferences(path, c, add) })
	for i := range p.Spec.ResourceClaims {
		add(fmt.Sprintf("spec.resourceClaims[%d]", i), "resourceclaims", clusterHint)
	}
	for i := range p.Spec.Volumes {
		volumeReference(fmt.Sprintf("spec.volumes[%d]", i), &p.Spec.Volumes[i].VolumeSource, add)
	}
	return out
}

func containerReferences(path string, c *v1.Container, add func(path, resource, hint string)) {
	for i, e := range c.EnvFrom {
		at := fmt.Sprintf("%s.envFrom[%d]", path, i)
		if e.ConfigMapRef != nil {
			add(at+".configMapRef", "configmaps", laterHint)
		}
		if e.SecretRef != nil {
			add(at+".secretRef", "secrets", laterHint)
		}
	}
	for i, e := range c.Env {
		if e.ValueFrom == nil {
			continue
		}
		at := fmt.Sprintf("%s.env[%d].valueFrom", path, i)
		if e.ValueFrom.ConfigMapKeyRef != nil {
			add(at+".configMapKeyRef", "configmaps", laterHint)
		}
		if e.ValueFrom.SecretKeyRef != nil {
			add(at+".secretKeyRef", "secrets", laterHint)
		}
	}
}

func volumeReference(path string, v *v1.VolumeSource, add func(path, resource, hint string)) {
	const noClaim = "a node without a cluster has no volume claims; use a hostPath volume"
	const noSecret = "a node without a cluster has no Secrets for this kind of volume; mount it on the node and use a hostPath volume"
	switch {
	case v.ConfigMap != nil:
		add(path+".configMap", "configmaps (via configmap volumes)", laterHint)
	case v.Secret != nil:
		add(path+".secret", "secrets (via secret volumes)", laterHint)
	case v.CSI != nil:
		add(path+".csi", "csidrivers (via CSI volumes)", "a node without a cluster has no CSI drivers; mount it on the node and use a hostPath volume")
	case v.Glusterfs != nil:
		add(path+".glusterfs", "endpoints (via glusterFS volumes)", noSecret)
	case v.PersistentVolumeClaim != nil:
		add(path+".persistentVolumeClaim", "persistentvolumeclaims", noClaim)
	case v.Ephemeral != nil:
		add(path+".ephemeral", "persistentvolumeclaims (via ephemeral volumes)", noClaim)
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
		case s.ConfigMap != nil:
			add(at+".configMap", "configmaps (via projected volumes)", laterHint)
		case s.Secret != nil:
			add(at+".secret", "secrets (via projected volumes)", laterHint)
		case s.ServiceAccountToken != nil:
			add(at+".serviceAccountToken", "serviceaccounts (via projected volumes)", clusterHint)
		case s.ClusterTrustBundle != nil:
			add(at+".clusterTrustBundle", "clustertrustbundles", clusterHint)
		case s.PodCertificate != nil:
			add(at+".podCertificate", "podcertificates", clusterHint)
		}
	}
}

// visitContainers calls f for each container with its path, in the order of
// the spec's kinds.
func visitContainers(p *v1.Pod, f func(path string, c *v1.Container)) {
	for i := range p.Spec.InitContainers {
		f(fmt.Sprintf("spec.initContainers[%d]", i), &p.Spec.InitContainers[i])
	}
	for i := range p.Spec.Containers {
		f(fmt.Sprintf("spec.containers[%d]", i), &p.Spec.Containers[i])
	}
	for i := range p.Spec.EphemeralContainers {
		f(fmt.Sprintf("spec.ephemeralContainers[%d]", i), (*v1.Container)(&p.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
}

package cli

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podd/server"
)

// writeVolumes writes each volume as the manifest has it, and its location on the
// host.
func (d *description) writeVolumes(s *sheet) {
	all := d.Pod.Spec.Volumes
	s.heading(0, "Volumes", len(all) == 0)
	for i := range all {
		v := &all[i]
		s.line(1, v.Name+":")
		s.volume(v)
		at := slices.IndexFunc(d.volumes, func(b server.Volume) bool { return b.Name == v.Name })
		if at >= 0 {
			s.optional(2, "PersistentVolume", d.volumes[at].PersistentVolume)
			s.optional(2, "Bound To", boundTo(v, d.volumes[at]))
		}
	}
}

// boundTo returns a volume's location on the host and its file system. It is empty if the
// volume's own fields already state it.
func boundTo(v *v1.Volume, at server.Volume) string {
	switch {
	case at.Message != "":
		return "<" + at.Message + ">"
	case at.FSType != "" && at.FSType != at.Source:
		return fmt.Sprintf("%s (%s, %s)", at.Path, at.Source, at.FSType)
	case at.FSType != "":
		return fmt.Sprintf("%s (%s)", at.Path, at.FSType)
	case v.HostPath != nil && v.HostPath.Path == at.Path:
		return ""
	}
	return at.Path
}

// volume writes the fields that kubectl shows for the kind.
func (s *sheet) volume(v *v1.Volume) {
	switch {
	case v.HostPath != nil:
		kind := none
		if v.HostPath.Type != nil {
			kind = string(*v.HostPath.Type)
		}
		s.source("HostPath (bare host directory volume)", "Path", v.HostPath.Path, "HostPathType", kind)
	case v.EmptyDir != nil:
		limit := "<unset>"
		if q := v.EmptyDir.SizeLimit; q != nil && q.Sign() > 0 {
			limit = q.String()
		}
		s.source("EmptyDir (a temporary directory that shares a pod's lifetime)", "Medium", string(v.EmptyDir.Medium), "SizeLimit", limit)
	case v.Secret != nil:
		s.source("Secret (a volume populated by a Secret)", "SecretName", v.Secret.SecretName, "Optional", formatBool(v.Secret.Optional))
	case v.ConfigMap != nil:
		s.source("ConfigMap (a volume populated by a ConfigMap)", "Name", v.ConfigMap.Name, "Optional", formatBool(v.ConfigMap.Optional))
	case v.DownwardAPI != nil:
		s.source("DownwardAPI (a volume populated by information about the pod)")
		s.items(v.DownwardAPI.Items)
	case v.Projected != nil:
		s.source("Projected (a volume that contains injected data from multiple sources)")
		for i := range v.Projected.Sources {
			s.projection(&v.Projected.Sources[i])
		}
	case v.Image != nil:
		s.source("Image (a container image or OCI artifact)", "Reference", v.Image.Reference, "PullPolicy", string(v.Image.PullPolicy))
	case v.NFS != nil:
		s.source("NFS (an NFS mount that lasts the lifetime of a pod)", "Server", v.NFS.Server, "Path", v.NFS.Path, "ReadOnly", fmt.Sprint(v.NFS.ReadOnly))
	default:
		s.provisionedVolume(v)
	}
}

// provisionedVolume writes the kinds of volumes that are provisioned elsewhere.
func (s *sheet) provisionedVolume(v *v1.Volume) {
	switch {
	case v.PersistentVolumeClaim != nil:
		claim := v.PersistentVolumeClaim
		s.source("PersistentVolumeClaim (a reference to a PersistentVolumeClaim in the same namespace)", "ClaimName", claim.ClaimName, "ReadOnly", fmt.Sprint(claim.ReadOnly))
	case v.CSI != nil:
		fsType := ""
		if v.CSI.FSType != nil {
			fsType = *v.CSI.FSType
		}
		s.source("CSI (a Container Storage Interface (CSI) volume source)", "Driver", v.CSI.Driver, "FSType", fsType, "ReadOnly", formatBool(v.CSI.ReadOnly))
		s.values(2, "VolumeAttributes", pairs(v.CSI.VolumeAttributes))
	case v.Ephemeral != nil:
		s.source("EphemeralVolume (an inline specification for a volume that gets created and deleted with the pod)")
		s.claimTemplate(v.Ephemeral.VolumeClaimTemplate)
	default:
		s.source(sourceName(&v.VolumeSource))
	}
}

// source writes the kind and its fields; names and values alternate.
func (s *sheet) source(kind string, fields ...string) {
	s.field(2, "Type", kind)
	for pair := range slices.Chunk(fields, 2) {
		s.field(2, pair[0], pair[1])
	}
}

func formatBool(b *bool) string { return fmt.Sprint(isTrue(b)) }

func (s *sheet) items(all []v1.DownwardAPIVolumeFile) {
	s.heading(2, "Items", false)
	for _, item := range all {
		switch {
		case item.FieldRef != nil:
			s.line(3, item.FieldRef.FieldPath+" -> "+item.Path)
		case item.ResourceFieldRef != nil:
			s.line(3, item.ResourceFieldRef.Resource+" -> "+item.Path)
		}
	}
}

func (s *sheet) projection(source *v1.VolumeProjection) {
	switch {
	case source.Secret != nil:
		s.field(2, "SecretName", source.Secret.Name)
		s.field(2, "Optional", formatBool(source.Secret.Optional))
	case source.ConfigMap != nil:
		s.field(2, "ConfigMapName", source.ConfigMap.Name)
		s.field(2, "Optional", formatBool(source.ConfigMap.Optional))
	case source.DownwardAPI != nil:
		s.field(2, "DownwardAPI", "true")
	case source.ServiceAccountToken != nil:
		if seconds := source.ServiceAccountToken.ExpirationSeconds; seconds != nil {
			s.field(2, "TokenExpirationSeconds", fmt.Sprint(*seconds))
		}
	case source.ClusterTrustBundle != nil:
		bundle := source.ClusterTrustBundle
		name := none
		if bundle.Name != nil {
			name = *bundle.Name
		} else if bundle.SignerName != nil {
			name = *bundle.SignerName
		}
		s.field(2, "ClusterTrustBundle", name)
	case source.PodCertificate != nil:
		s.field(2, "PodCertificate", source.PodCertificate.SignerName)
	}
}

func (s *sheet) claimTemplate(claim *v1.PersistentVolumeClaimTemplate) {
	if claim == nil {
		return
	}
	class, volume, size := "", claim.Spec.VolumeName, claim.Spec.Resources.Requests[v1.ResourceStorage]
	if claim.Spec.StorageClassName != nil {
		class = *claim.Spec.StorageClassName
	}
	var modes []string
	for _, mode := range claim.Spec.AccessModes {
		modes = append(modes, string(mode))
	}
	s.field(2, "StorageClass", class)
	s.field(2, "Volume", volume)
	s.values(2, "Labels", pairs(claim.Labels))
	s.field(2, "Capacity", size.String())
	s.field(2, "Access Modes", strings.Join(modes, ","))
	if claim.Spec.VolumeMode != nil {
		s.field(2, "VolumeMode", string(*claim.Spec.VolumeMode))
	}
}

// sourceName returns the field name of a kind without a layout of its own.
func sourceName(source *v1.VolumeSource) string {
	fields := reflect.ValueOf(source).Elem()
	for i := range fields.NumField() {
		if !fields.Field(i).IsNil() {
			name, _, _ := strings.Cut(fields.Type().Field(i).Tag.Get("json"), ",")
			return cmp.Or(name, none)
		}
	}
	return "<unknown>"
}

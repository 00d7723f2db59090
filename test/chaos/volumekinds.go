package main

import (
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podd/test/e2e/testnode"
	"podd/test/e2e/whole"
)

// volumeKinds are pods with volumes of every kind that podd has, besides plain
// emptyDirs, and with variables of objects.
var volumeKinds = []kind{
	{name: "values", rest: runs, spec: func(b *builder) {
		b.configMap("/v/c", "settings")
		b.secret("/v/s", "password")
		b.projected("/v/p", "more-settings", "")
		b.projected("/v/q", "", "more-passwords")
		b.downward()
		b.group()
		b.main(b.watching("/v/c", "/v/s", "/v/p", "/v/q"), "-memory=/v/s,/v/p,/v/q,/v/d", "-needs=/v/d/labels,/v/d/name")
	}},
	{name: "beside", rest: runs, own: true, spec: func(b *builder) {
		b.configMap("/v/c", b.Name+"-settings")
		b.secret("/v/s", b.Name+"-password")
		b.main(b.watching("/v/c", "/v/s"), "-memory=/v/s")
	}},
	{name: "parts", rest: runs, spec: func(b *builder) {
		b.empty(v1.StorageMediumDefault)
		b.group()
		b.configMap("/v/c", "settings")
		b.secret("/v/s", "password")
		b.projected("/v/p", "more-settings", "")
		b.downward()
		b.image()
		b.hostPath("/h", "tree", v1.HostPathDirectoryOrCreate)
		b.main(b.watching("/v/c", "/v/s"), "-keys=/part/c,/part/s,/part/p", "-needs=/part/d,/part/image/busybox,/part/h")
		b.part("c", whole.KeyVersion, "/part/c")
		b.part("s", whole.KeyVersion, "/part/s")
		b.part("p", whole.KeyVersion, "/part/p")
		b.part("d", "name", "/part/d")
		b.part("image", "bin", "/part/image")
		b.part("h", "made/on/demand", "/part/h")
		b.Spec.Containers[0].Env = []v1.EnvVar{{Name: "PART", Value: b.life + ".part"}}
		mounts := &b.Spec.Containers[0].VolumeMounts
		*mounts = append(*mounts, v1.VolumeMount{Name: "empty", MountPath: "/part/empty", SubPathExpr: "$(PART)"})
	}},
	{name: "files", rest: runs, spec: func(b *builder) {
		b.image()
		b.main("-needs=/image/bin/busybox")
	}},
	{name: "hosts", rest: runs, spec: func(b *builder) {
		b.hostPath("/h/any", "any", v1.HostPathUnset)
		b.hostPath("/h/dir", "dir", v1.HostPathDirectoryOrCreate)
		b.hostPath("/h/file", "file", v1.HostPathFileOrCreate)
		b.Spec.Volumes = append(b.Spec.Volumes, hostPath("null", "/dev/null", v1.HostPathCharDev))
		b.main("-needs=/h/dir,/h/file,/h/null")
		b.mount("null", "/h/null")
	}},
	{name: "nested", rest: runs, spec: func(b *builder) {
		b.empty(v1.StorageMediumMemory)
		b.configMap("/v/c", "settings")
		b.projected("/v/c/inside", "", "password")
		b.main(b.watching("/v/c", "/v/c/inside"), "-memory=/v/c/inside")
	}},
	{name: "propagates", rest: runs, spec: func(b *builder) {
		b.empty(v1.StorageMediumDefault)
		b.main("-mounts=/empty/" + b.life + ".mounted")
		yes, both := true, v1.MountPropagationBidirectional
		c := &b.Spec.Containers[0]
		c.SecurityContext = &v1.SecurityContext{Privileged: &yes}
		c.VolumeMounts[len(c.VolumeMounts)-1].MountPropagation = &both
	}},
	{name: "environ", rest: runs, own: true, spec: func(b *builder) {
		b.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{
			{Prefix: "C_", ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: b.Name + "-settings"}}},
			{Prefix: "S_", SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: b.Name + "-password"}}},
		}
	}},
	{name: "secretjob", rest: ends, spec: func(b *builder) {
		b.policy(v1.RestartPolicyNever)
		b.empty(v1.StorageMediumMemory)
		b.secret("/v/s", "password")
		b.init("one", "-for="+b.upTo(300))
		b.main("-for="+b.upTo(1000), b.watching("/v/s"), "-memory=/v/s")
	}},
}

// watching is the flag that has the container main watch these volumes.
func (b *builder) watching(dirs ...string) string {
	return "-values=" + strings.Join(dirs, ",")
}

// group gives some pods an fsGroup.
func (b *builder) group() {
	if group := int64(4321); b.rng.IntN(2) == 0 {
		b.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
	}
}

// at mounts a volume into what containers are made from now on.
func (b *builder) at(path string, v v1.Volume) {
	b.Spec.Volumes = append(b.Spec.Volumes, v)
	b.mounts = append(b.mounts, v1.VolumeMount{Name: v.Name, MountPath: path})
}

func (b *builder) configMap(path, name string) {
	b.at(path, v1.Volume{Name: last(path), VolumeSource: v1.VolumeSource{
		ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: name}},
	}})
}

func (b *builder) secret(path, name string) {
	b.at(path, v1.Volume{Name: last(path), VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: name}}})
}

// projected has the keys of a ConfigMap or of a Secret.
func (b *builder) projected(path, configMap, secret string) {
	var s v1.VolumeProjection
	if configMap != "" {
		s.ConfigMap = &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: configMap}}
	} else {
		s.Secret = &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: secret}}
	}
	b.at(path, v1.Volume{Name: last(path), VolumeSource: v1.VolumeSource{
		Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{s}},
	}})
}

func (b *builder) downward() {
	item := func(path, field string) v1.DownwardAPIVolumeFile {
		return v1.DownwardAPIVolumeFile{Path: path, FieldRef: &v1.ObjectFieldSelector{FieldPath: field}}
	}
	b.at("/v/d", v1.Volume{Name: "d", VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{
		Items: []v1.DownwardAPIVolumeFile{item("labels", "metadata.labels"), item("name", "metadata.name")},
	}}})
}

func (b *builder) image() {
	b.at("/image", v1.Volume{Name: "image", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: testnode.ImageBusybox}}})
}

// hostPath is a place of this pod's, which outlives it.
func (b *builder) hostPath(path, name string, kind v1.HostPathType) {
	b.at(path, hostPath(last(path), filepath.Join(b.hosts, b.Name+"-"+name), kind))
}

func hostPath(name, path string, kind v1.HostPathType) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path, Type: &kind}}}
}

// mount and part mount a volume, or a part of it, into the container main.
func (b *builder) mount(volume, path string) { b.part(volume, "", path) }

func (b *builder) part(volume, sub, path string) {
	c := &b.Spec.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: volume, MountPath: path, SubPath: sub})
}

// last is a path's last part, which is a volume's name.
func last(path string) string { return filepath.Base(path) }
